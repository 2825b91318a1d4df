"""Sees each launch with its live arguments, and keeps what the flags and settings of DebugMode name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernelscope.events import Call, Finding
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.model.debug_notes import CallNotes, OperatorNotes
from kernelscope.model.kinds import view_of
from kernelscope.model.labels import map_tree
from kernelscope.probes.bus import BUS
from kernelscope.probes.describe import is_subclass, parts
from kernelscope.probes.eager.annotations import in_graph_pool
from kernelscope.probes.launch import Launch

from .labels import operator_label
from .listing import Listing
from .settings import SETTINGS

_OPERATOR_KINDS = ("op", "extern")

_NOT_KEPT = Finding(
    "not-kept-in-cuda-graph",
    "arguments and outputs in a CUDA graph's memory are described, not kept: the graph would overwrite them",
)


class LaunchNotes:
    """The observer that a DebugMode puts into its recording."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._recording = listing.recording
        self._labels = listing.labels
        self._label_kernels = listing.flags.record_ids or bool(listing.flags.record_tensor_attributes)
        self.inputs_shown: set[int] = set()
        self._failures: set[tuple[str, str]] = set()

    def before(self, call: Call, launch: Launch) -> None:
        kind, notes = call.site.kernel.kind, CallNotes()
        self._listing.notes[call.key] = notes
        call.depth = self._listing.depth + 1 + _nesting(launch)
        hashing = SETTINGS.hashing
        if hashing is not None and hashing.hash_inputs:
            self.inputs_shown.add(call.key)
        if kind in _OPERATOR_KINDS:
            notes.func = launch.func
        if kind == "op":
            notes.operator = self._operator_notes(launch)
            notes.stack_trace, notes.fwd_stack_trace = self._listing.operator_stack()
        else:
            notes.kwargs = launch.kwargs if self._keeps(launch) else self._labels.tree(launch.kwargs)
            if self._label_kernels:
                self._label(notes, launch.flat, 0)
        if kind in _OPERATOR_KINDS:
            view = view_of(self._recording.run, call)
            notes.is_stock_form = self._listing.flags.stock_form
            notes.log.update(
                self._listing.hooks.before(
                    launch.func, launch.args, launch.kwargs, view, launch.site.kernel.name, values=True
                )
            )

    def after(self, call: Call, launch: Launch) -> None:
        kind, notes = call.site.kernel.kind, self._listing.notes.setdefault(call.key, CallNotes())
        if notes.operator is not None:
            if self._listing.flags.record_output:
                notes.operator.output = self._labels.tree(launch.result)
            notes.operator.input_places, notes.operator.output_places = _places(launch)
        else:
            if self._keeps(launch):
                notes.originals = (*launch.flat, *launch.returned)
            if self._label_kernels:
                self._label(notes, launch.returned, len(launch.flat))
        if SETTINGS.keep_outputs and not notes.is_stock_form:
            if in_graph_pool(launch):
                self._recording.finding(_NOT_KEPT)
            else:
                notes.record["output"] = _cloned_outputs(launch, like_result=kind == "op")
        if kind in _OPERATOR_KINDS and launch.error is None:
            record, logged = self._listing.hooks.after(
                launch.func, launch.args, launch.kwargs, launch.result, launch.site.kernel.name, values=True
            )
            notes.record.update(record)
            notes.log.update(logged)
        self._note_failures(call)

    # -- what is kept ----------------------------------------------------------------------------------

    def _keeps(self, launch: Launch) -> bool:
        if not self._listing.flags.store_original_args:
            return False
        if in_graph_pool(launch):
            self._recording.finding(_NOT_KEPT)
            return False
        return True

    def _operator_notes(self, launch: Launch) -> OperatorNotes:
        args, kwargs = self._labels.tree(launch.args), self._labels.tree(launch.kwargs)
        notes = OperatorNotes(operator_label(launch.func), args, kwargs)
        if self._keeps(launch):
            notes.original_args, notes.original_kwargs = launch.args, launch.kwargs
        return notes

    def _label(self, notes: CallNotes, values: Any, first: int) -> None:
        for i, value in enumerate(values, first):
            if isinstance(value, torch.Tensor):
                notes.labels[i] = self._labels.tree(value)

    def _note_failures(self, call: Call) -> None:
        fingerprinter = call.fingerprinter
        if fingerprinter is None:
            return
        for slot in (*(call.pre or {}).values(), *(call.post or {}).values()):
            for failure in fingerprinter.failures(slot):
                if (failure.kind, failure.message) not in self._failures:
                    self._failures.add((failure.kind, failure.message))
                    message = f"the hash function {failure.kind} failed: {failure.message}"
                    self._recording.finding(
                        Finding("hash-failed", message, call.index, call.site.kernel.name)
                    )


def _nesting(launch: Launch) -> int:
    return 0 if launch.outer is None else 1 + _nesting(launch.outer)


def _cloned_outputs(launch: Launch, *, like_result: bool) -> Any:
    """Copies of what was written, made on the launch's own stream, without waiting.

    Those of an operator are nested like its result.
    """
    written = [launch.flat[i] for i in sorted(launch.point.written)]
    with BUS.mute(), _on_stream_of(launch), quiet():
        if like_result and launch.result is not None:
            return map_tree(lambda v: _copy(v) if isinstance(v, torch.Tensor) else v, launch.result)
        return [_copy(tensor) for tensor in [*written, *launch.returned]]


def _places(launch: Launch) -> tuple[Any, Any]:
    """Where the tensors of (args, kwargs) and of the result stand among the flat arguments."""
    values = [*launch.flat, *launch.returned]
    # The first of several: an operator that returns its argument wrote that.
    known = {id(v): i for i, v in reversed([*enumerate(values)]) if isinstance(v, torch.Tensor)}

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if is_subclass(value):
            return [known.get(id(part)) for _, part in parts(value)]
        return known.get(id(value))

    with torch._C.DisableTorchFunction():
        passed = map_tree(place, (tuple(launch.args), dict(launch.kwargs)))
        return passed, None if launch.result is None else map_tree(place, launch.result)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _on_stream_of(launch: Launch) -> AbstractContextManager[Any]:
    device = launch.site.device
    if not device.startswith("cuda") or not launch.stream:
        return nullcontext()
    number = int(device.partition(":")[2] or 0)
    if torch._C._cuda_getCurrentRawStream(number) == launch.stream:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(launch.stream, device=number))  # type: ignore[no-untyped-call]
