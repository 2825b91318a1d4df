"""Prints what each launch finds and leaves, in the form of torch's intermediate-value printer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import torch

from kernelscope.events import Call, GraphCall
from kernelscope.fingerprint import why_not
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch

from .argument_snapshots import LaunchViewer, Seen, seen
from .graph_inputs import named_inputs
from .kernel_filter import KernelFilter
from .tensor_text import MOST_SHOWN, tensor_lines


class Printer(LaunchViewer):
    """An observer that prints values to standard output, or to a stream of its own."""

    def __init__(
        self, wanted: KernelFilter, *, most_shown: int = MOST_SHOWN, stream: TextIO | None = None
    ) -> None:
        super().__init__(wanted)
        self._most_shown = most_shown
        self._stream = stream

    def graph_inputs(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        for name, value in named_inputs(graph_call, inputs):
            with BUS.mute(), quiet():
                lines = _input_lines(value, self._most_shown)
            if lines:
                self._print([f"aoti_model_inputs - {name}", *lines])

    def _show(self, call: Call, launch: Launch, moment: str) -> None:
        for one in seen(call, launch, moment):
            with BUS.mute(), quiet():
                lines = self._lines(call, one)
            backend = "gcu" if call.site.kernel.producer == "gcu" else "inductor"
            title = f"{backend}: {moment} - {call.site.kernel.name} - {one.name}"
            self._print([title, *lines])

    def _lines(self, call: Call, one: Seen) -> list[str]:
        if one.arg.tensor is None:
            return [f"Value:  {one.value}"]
        known = one.arg.name if one.arg.name != one.name else ""
        lines = [f"Argument:  {known} ({one.arg.role})"] if known else []
        if one.tensor is None:
            spec = one.arg.tensor
            size = f"Size:  {torch.Size(spec.shape)}"
            return [*lines, f"Values:  {one.why}", size, f"Dtype:  torch.{spec.dtype}"]
        return [*lines, *tensor_lines(one.tensor, one.fingerprint(call), self._most_shown)]

    def _print(self, lines: list[str]) -> None:
        write_out(self._stream or sys.stdout, "\n".join(lines) + "\n")


class NamePrinter(LaunchViewer):
    """Prints each kernel's name before its launch, at once: the last one printed is the one that crashed."""

    def __init__(self, wanted: KernelFilter, *, stream: TextIO | None = None) -> None:
        super().__init__(wanted)
        self._stream = stream

    def _show(self, call: Call, launch: Launch, moment: str) -> None:
        if not launch.point.is_past or self._stream is not None:  # else it was printed in time, from C
            stream = self._stream or sys.stdout
            write_out(stream, f"[ {moment}: {call.site.kernel.name} ]\n")
            stream.flush()


def _input_lines(value: Any, most_shown: int) -> list[str]:
    if isinstance(value, bool | int | float | complex):
        return [f"Value:  {value}"]
    if not isinstance(value, torch.Tensor):
        return []
    reason = why_not(value)
    return tensor_lines(value, None, most_shown) if reason is None else [f"Values:  cannot be read: {reason}"]


def write_out(stream: TextIO, text: str) -> None:
    """In one piece: other threads print too. What the program's stream cannot encode is escaped."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
