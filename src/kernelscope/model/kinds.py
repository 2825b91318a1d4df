"""Calls of kinds that users ask for by class: Triton kernels and operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernelscope.events import Call

from .call import KernelCall
from .call_facts import RunOfCall
from .debug_notes import OperatorNotes
from .labels import arguments_text, call_text, output_text, settings_text


class CodeKernelCall(KernelCall):
    """A launch of a kernel with source code of its own: Triton, C++ or gcu, generated or user-written."""

    __slots__ = ()

    @property
    def kwargs_str(self) -> str:
        """The arguments as stock's DebugMode writes those of a Triton kernel."""
        return ", ".join(f"{n}={self._shown(i, ())}" for i, n in enumerate(self.arg_names))


class TritonKernelCall(CodeKernelCall):
    """A launch of a Triton kernel."""

    __slots__ = ()


class OperatorCall(KernelCall):
    """One eager operator. With DebugMode's notes `args` and `kwargs` are what was passed, as in stock's.

    `arg_names`, roles and hashes stay those of the flat list, in which a list of tensors is opened.
    """

    __slots__ = ()

    @property
    def notes(self) -> OperatorNotes | None:
        return self._notes.operator

    @property
    def args(self) -> tuple[Any, ...]:
        notes = self.notes
        if notes is None:
            return super().args
        return notes.args if notes.original_args is None else notes.original_args

    @property
    def kwargs(self) -> dict[str, Any]:
        notes = self.notes
        if notes is None:
            return super().kwargs
        return notes.kwargs if notes.original_args is None else notes.original_kwargs

    @property
    def args_str(self) -> str:
        return "" if self.notes is None else arguments_text(self.notes.args)

    @property
    def kwargs_str(self) -> str:
        return "" if self.notes is None else settings_text(self.notes.kwargs)

    @property
    def output_str(self) -> str | None:
        """What it returned, None where nothing was kept."""
        return None if self.notes is None else output_text(self.notes.output) or None

    def render(self, attributes: Sequence[str] = ()) -> str:
        return self.line(attributes)

    def _call_text(self, attributes: Sequence[str]) -> str:
        notes = self.notes
        if notes is None:
            return super()._call_text(attributes)
        return call_text(notes.name, notes.args, notes.kwargs, attributes) + output_text(
            notes.output, attributes
        )

    def __iter__(self) -> Iterator[Any]:
        """As stock's entries: operator, args, kwargs, depth."""
        yield from (self.op, self.args, self.kwargs, self.call_depth)


_CLASSES: dict[str, type[KernelCall]] = {
    "triton": TritonKernelCall,
    "cpp": CodeKernelCall,
    "gcu": CodeKernelCall,
    "op": OperatorCall,
}


def view_of(run: RunOfCall, call: Call) -> KernelCall:
    return _CLASSES.get(call.site.kernel.kind, KernelCall)(run, call)
