"""A result that differs, although the same operator made it of the same values: it may be right all the same.

An operator may leave a result unwritten on one device. And it may cancel numbers inside, so that its own
rounding is larger than what a rounding of its inputs does: that shows where each of its steps is rounded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.probes.compiler_steps.decompositions import decomposition_of
from kernelscope.probes.launch import Launch
from kernelscope.probes.thread_mode import ThreadMode
from kernelscope.shadowing.reference.written_arguments import unwritten

from .replicas import COUNT

_EPS = torch.finfo(torch.float32).eps  # half precision is computed in float32, and then rounded


def may_run_again(launch: Launch) -> bool:
    """It has left its inputs as they were, and does nothing else than to compute."""
    return not launch.point.written and not launch.site.collective and launch.site.kernel.kind == "op"


def is_unwritten(launch: Launch, tensor: torch.Tensor, device: str) -> bool:
    """Whether the operator leaves nothing of this result, on the device on which the other program ran it."""

    def again() -> Any:
        args, kwargs = tree_map(lambda part: _on(part, device), (launch.args, launch.kwargs))
        return same_result(launch, tensor, launch.func(*args, **kwargs))

    try:
        value = again()
    except Exception:  # this machine does not have the device, or the device not the operator
        return False
    found = unwritten(value, again)
    return found is not None and bool(found.all())


def with_inner_rounding(launch: Launch, tensor: torch.Tensor) -> list[torch.Tensor]:
    """This result several times, with each step of the operator rounded at random; none: steps unknown."""
    steps = decomposition_of(launch.func)
    if steps is None:
        return []
    args, kwargs = tree_map(_wide, (launch.args, launch.kwargs))
    generator, found = torch.Generator().manual_seed(0), []
    try:
        for _ in range(COUNT):
            with _Rounding(generator):
                result = same_result(launch, tensor, steps(*args, **kwargs))
            if result is None or result.shape != tensor.shape:
                return []
            found.append(result)
    except Exception:  # of torch's own description of the operator
        return []
    return found


class _Rounding(ThreadMode):  # type: ignore[no-untyped-call]
    """Every number that is computed is off by up to half a rounding."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not isinstance(made, torch.Tensor) or made.dtype != torch.float64 or func.is_view:
            return made
        noise = torch.rand(made.shape, generator=self._generator, dtype=torch.float64)
        return made * (1 + _EPS * (noise.to(made.device) - 0.5))


def same_result(launch: Launch, tensor: torch.Tensor, result: Any) -> torch.Tensor | None:
    made = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
    found = [again for own, again in zip(launch.returned, made, strict=True) if own is tensor]
    return found[0] if found else None


def _wide(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        return part.to(torch.float64) if part.is_floating_point() else part
    return torch.float64 if isinstance(part, torch.dtype) and part.is_floating_point else part


def _on(part: Any, device: str) -> Any:
    if isinstance(part, torch.Tensor):
        return part.to(device)
    return torch.device(device) if isinstance(part, torch.device) else part
