"""A fault in one launch of a program, whatever the program is: one element of an output is changed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._inductor.graph import GraphLowering

from kernelscope.probes.triton.kernel_signatures import cpp_arguments

_KERNEL = re.compile(r"^(\w+) = async_compile\.cpp_pybinding\(.*?^'''.*?\)$", re.MULTILINE | re.DOTALL)
_TRITON = re.compile(r"^(\w+) = async_compile\.triton\(.*?^'''.*?\)$", re.MULTILINE | re.DOTALL)
_STORE = re.compile(r"tl\.(?:store|atomic_add)\((\w+) .*, (\w+), \w+(?:, sem=\S+)?\)")


@dataclass
class Planted:
    """Where the fault is; without a kernel it was not planted."""

    launch: int  # of the program: this one leaves a wrong element
    launches: int = 0  # seen so far
    kernel: str = ""
    kernels: list[str] = field(default_factory=list)  # of all launches

    def after(self, kernel: str, outputs: list[torch.Tensor], place: int) -> None:
        self.kernels.append(kernel)
        if self.launches == self.launch and outputs:
            output = outputs[place % len(outputs)]
            if output.numel():
                _change(output, place)
                self.kernel = kernel
        self.launches += 1


def _change(tensor: torch.Tensor, place: int) -> None:
    index = tuple(place % n for n in tensor.shape)
    element = tensor[index]
    if tensor.dtype is torch.bool:
        tensor[index] = ~element
    elif tensor.is_floating_point():
        tensor[index] = element + 1 + 2 * element.abs()
    else:
        tensor[index] = element + 1


@contextmanager
def wrong_element(launch: int, place: int = 0) -> Iterator[Planted]:
    """The launch with this number, of a generated kernel or a product, changes an element of an output."""
    planted, original = Planted(launch), GraphLowering._compile_to_module_lines

    def compile_lines(self: Any, code: Any) -> Any:
        if not planted.kernel:
            code = _with_wrong_triton_kernel(code, planted)
        module = original(self, code)
        for found in _KERNEL.finditer(Path(module.__file__).read_text()):
            roles = [role for _, role in cpp_arguments(found[0])]
            setattr(module, found[1], _kernel(getattr(module, found[1]), found[1], roles, planted, place))
        module.extern_kernels = _Externs(module.extern_kernels, planted, place)
        return module

    GraphLowering._compile_to_module_lines = compile_lines  # type: ignore[method-assign]
    try:
        yield planted
    finally:
        GraphLowering._compile_to_module_lines = original  # type: ignore[method-assign]


def _with_wrong_triton_kernel(code: Any, planted: Planted) -> Any:
    """Of a module with Triton kernels one stores something else; which depends on the launch."""
    found = list(_TRITON.finditer(code.value))
    if not found:
        return code
    chosen = found[planted.launch % len(found)]
    # Not of integers: with a wrong index the device stops.
    stores = [each for each in _STORE.finditer(chosen[0]) if f"'{each[1]}': '*fp" in chosen[0]]
    if not stores:
        return code
    store = stores[planted.launch % len(stores)]
    planted.kernel = chosen[1]
    start, end = (chosen.start() + place for place in store.span(2))
    return dataclasses.replace(code, value=f"{code.value[:start]}{store[2]} + 1{code.value[end:]}")


def _kernel(kernel: Any, name: str, roles: list[str], planted: Planted, place: int) -> Callable[..., Any]:
    def launch(*args: Any) -> Any:
        result = kernel(*args)
        outputs = [a for a, role in zip(args, roles, strict=False) if role in ("out", "inout")]
        planted.after(name, outputs, place)
        return result

    return launch


class _Externs:
    """`extern_kernels` of a wrapper."""

    def __init__(self, original: Any, planted: Planted, place: int) -> None:
        self._original, self._planted, self._place = original, planted, place

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._original, name)

        def launch(*args: Any, **kwargs: Any) -> Any:
            result = kernel(*args, **kwargs)
            written = kwargs.get("out", result)
            outputs = [written] if isinstance(written, torch.Tensor) else []
            self._planted.after(f"extern_kernels.{name}", outputs, self._place)
            return result

        return launch
