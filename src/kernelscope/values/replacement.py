"""Puts other values in the place of a kernel's outputs, to test a suspicion without compiling again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from kernelscope.config import Config, strict_from_environment
from kernelscope.events import Call, Site
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.recording import Recording

from .argument_snapshots import AFTER, seen

Arguments = dict[str, Any]  # by the kernel's name for it: tensors as the launch found them, and numbers
Outputs = torch.Tensor | Mapping[str, torch.Tensor]
Written = dict[str, torch.Tensor]  # what the kernel wrote, by the same names
Function = Callable[[Arguments, Written], Outputs]


class WantedSites(Protocol):
    """Which launches: a KernelFilter, or any other choice."""

    def wants_site(self, site: Site) -> bool: ...
    def complaints(self) -> list[str]: ...


class Replacer:
    """The observer that runs a function beside each launch of some kernels, and keeps its result instead."""

    def __init__(self, wanted: WantedSites, function: Function) -> None:
        self._wanted = wanted
        self._function = function
        self._before: dict[int, Arguments] = {}
        self.replaced = 0
        self.failure: Exception | None = None

    def before(self, call: Call, launch: Launch) -> None:
        if not self._wanted.wants_site(call.site):
            return
        if launch.point.is_past:
            self.failure = RuntimeError(
                f"the outputs of {call.site.kernel.name} cannot be replaced: it ran inside a C++ wrapper "
                "(cpp_wrapper or AOTInductor), where no Python runs between kernels"
            )
            return
        found: Arguments = {}
        with BUS.mute(), quiet():
            for i, (arg, value) in enumerate(zip(call.site.args, launch.flat, strict=False)):
                if not isinstance(value, torch.Tensor):
                    found[arg.name] = value
                elif i not in call.uninitialised:
                    found[arg.name] = value.detach().clone()
        self._before[call.key] = found

    def after(self, call: Call, launch: Launch) -> None:
        arguments = self._before.pop(call.key, None)
        if arguments is None or self.failure is not None:
            return
        outputs = {
            one.arg.name: one.tensor
            for one in seen(call, launch, AFTER)
            if one.tensor is not None and (one.position in launch.point.written or one.arg.returned)
        }
        try:
            with BUS.mute(), quiet():
                _write(self._function(arguments, outputs), outputs, call.site.kernel.name)
        except Exception as error:  # raised when the block ends; the kernel's own result stays
            self.failure = error
            return
        self.replaced += 1
        for storage in launch.storages:
            storage.epoch += 1  # so that recordings read the values again


class Replaced(Protocol):
    """How often something was replaced so far."""

    replaced: int


@contextmanager
def replaced_outputs(
    kernel: object, function: Callable[..., Outputs] | Outputs | torch.dtype, wanted: WantedSites, ops: str
) -> Iterator[Replaced]:
    """What the function returns takes the place of what the wanted kernels write, inside the block."""
    config = Config(ops=ops, strict=strict_from_environment())  # type: ignore[arg-type]  # checked by Config
    recording = Recording(config, keeps_calls=False)
    replacer = Replacer(wanted, _as_function(kernel, function))
    recording.observers.append(replacer)
    recording.open()
    try:
        yield replacer
    finally:
        recording.close()
        for message in wanted.complaints():
            print(f"kernelscope: {message}", file=sys.stderr)
    if replacer.failure is not None:
        raise RuntimeError(f"replace({kernel!r}): {replacer.failure}") from replacer.failure


def _as_function(kernel: object, given: object) -> Function:
    if isinstance(given, torch.Tensor | Mapping):
        return lambda arguments, written: given
    if isinstance(given, torch.dtype):
        return _rounding_to(kernel, given)
    if not callable(given):
        kind = type(given).__name__
        raise ValueError(
            f"replace({kernel!r}, …): give a function, a tensor, a dtype, or 'eager', not {kind}"
        )
    function: Callable[..., Outputs] = given
    if _takes_written(function):
        return function
    return lambda arguments, written: function(arguments)


def _takes_written(function: Callable[..., Any]) -> bool:
    """Whether it must be given two arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a builtin
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([p for p in parameters if p.kind in kinds and p.default is p.empty]) == 2


def _rounding_to(kernel: object, dtype: torch.dtype) -> Function:
    if not dtype.is_floating_point:
        raise ValueError(f"replace({kernel!r}, {dtype}): values are rounded to a floating-point dtype")

    def rounded(arguments: Arguments, written: Written) -> Outputs:
        floats = {name: tensor for name, tensor in written.items() if tensor.is_floating_point()}
        return {name: tensor.to(dtype).to(tensor.dtype) for name, tensor in floats.items()}

    return rounded


def _write(given: Outputs, outputs: dict[str, torch.Tensor], kernel: str) -> None:
    names = ", ".join(outputs)
    if isinstance(given, torch.Tensor):
        if len(outputs) != 1:
            raise ValueError(f"{kernel} writes {names}; return a dict with tensors by name")
        given = {next(iter(outputs)): given}
    if not isinstance(given, Mapping):
        raise TypeError(f"the function returned {type(given).__name__}, not a tensor or a dict of tensors")
    for name, tensor in given.items():
        if name not in outputs:
            raise ValueError(f"{kernel} does not write {name}; it writes {names}")
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"the function returned {type(tensor).__name__} for {name} of {kernel}, not a tensor"
            )
        target = outputs[name]
        if not torch.can_cast(tensor.dtype, target.dtype):
            raise ValueError(f"{name} of {kernel} is {target.dtype}; {tensor.dtype} cannot replace it")
        if tensor.shape != target.shape:
            raise ValueError(f"{name} of {kernel} has shape {tuple(target.shape)}, not {tuple(tensor.shape)}")
    for name, tensor in given.items():
        outputs[name].detach().copy_(tensor)
