"""The first call of each compiled function of a script: kept, and checked when the script has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map

from kernelscope.probes.dynamo.compiled_calls import CompiledCalls

_MOST = 8  # functions
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class NotedCall:
    """One call: the function, copies of its arguments, and the settings that it was made under."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gradients: bool
    autocast: tuple[bool, Any]
    device: str


class NotedCalls:
    """Collects the calls while the script runs; `each` then hands them to a check."""

    def __init__(self, ops: str) -> None:
        self._which = ops
        self._found: dict[int, NotedCall] = {}
        self.left_out = 0  # functions beyond the most that are checked

    @contextmanager
    def noting(self) -> Iterator[None]:
        probe = CompiledCalls(self._note, modules=self._which == "all")
        probe.install()
        try:
            yield
        finally:
            probe.remove()

    def _note(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if id(target) in self._found:
            return
        if len(self._found) >= _MOST:
            self.left_out += 1
            return
        args, kwargs = tree_map(_copied, (args, kwargs))
        tensors = [each for each in torch.utils._pytree.tree_leaves((args, kwargs)) if torch.is_tensor(each)]
        device = tensors[0].device.type if tensors else "cpu"
        autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        self._found[id(target)] = NotedCall(target, args, kwargs, torch.is_grad_enabled(), autocast, device)

    def each(self, check: Callable[[NotedCall], R]) -> list[R]:
        """What the check says of each call, under the settings that the call was made under."""
        found = []
        for call in self._found.values():
            is_on, dtype = call.autocast
            with (
                torch.set_grad_enabled(call.gradients),
                torch.autocast(call.device, dtype=dtype, enabled=is_on),
            ):
                found.append(check(call))
        return found


def is_compiled(fn: Any) -> bool:
    """Whether torch.compile has made it, or `module.compile()` was called."""
    is_module = isinstance(fn, torch.nn.Module)
    if is_module and getattr(fn, "_compiled_call_impl", None) is not None:
        return True
    return hasattr(fn, "_orig_mod" if is_module else "_torchdynamo_orig_callable")


def name_of(target: Any) -> str:
    inner = getattr(target, "_orig_mod", target)
    owner = getattr(inner, "__self__", None)
    return (
        type(owner if owner is not None else inner).__name__
        if not hasattr(inner, "__name__") or owner is not None
        else str(inner.__name__)
    )


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
