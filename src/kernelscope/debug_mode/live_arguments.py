"""Sees each launch with its live arguments, and keeps what the flags and settings of DebugMode name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernelscope.events import Call, Finding
from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.model.debug_notes import CallNotes, OperatorNotes
from kernelscope.model.kinds import view_of
from kernelscope.probes.bus import BUS
from kernelscope.probes.eager.annotations import in_graph_pool
from kernelscope.probes.launch import Launch

from .labels import operator_label
from .listing import Listing
from .settings import SETTINGS, Hook

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
            for hook in SETTINGS.hooks("pre_log_hook"):
                notes.log.update(self._call_hook(hook, launch, view_of(self._recording.run, call)))

    def after(self, call: Call, launch: Launch) -> None:
        kind, notes = call.site.kernel.kind, self._listing.notes.setdefault(call.key, CallNotes())
        if notes.operator is not None:
            if self._listing.flags.record_output:
                notes.operator.output = self._labels.tree(launch.result)
        else:
            if self._keeps(launch):
                notes.originals = (*launch.flat, *launch.returned)
            if self._label_kernels:
                self._label(notes, launch.returned, len(launch.flat))
        if SETTINGS.keep_outputs:
            if in_graph_pool(launch):
                self._recording.finding(_NOT_KEPT)
            else:
                notes.record["output"] = _cloned_outputs(launch)
        if kind in _OPERATOR_KINDS:
            for hook in SETTINGS.hooks("record_hook"):
                notes.record.update(self._call_hook(hook, launch, launch.result))
            for hook in SETTINGS.hooks("log_hook"):
                notes.log.update(self._call_hook(hook, launch, launch.result))
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

    def _call_hook(self, hook: Hook, launch: Launch, last: Any) -> dict[str, Any]:
        """Call a user's hook; its faults are findings, because the program is not to blame for them."""
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            with BUS.mute():
                returned = hook(launch.func, (), launch.args, launch.kwargs, last)
        except Exception as error:
            self._fault("hook-failed", f"the hook {name} raised {type(error).__name__}: {error}", launch)
            return {}
        if returned is None or isinstance(returned, dict):
            return returned or {}
        self._fault("hook-failed", f"the hook {name} must return a dict or None, not {returned!r}", launch)
        return {}

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

    def _fault(self, kind: str, message: str, launch: Launch) -> None:
        if (kind, message) not in self._failures:
            self._failures.add((kind, message))
            self._recording.finding(Finding(kind, message, kernel=launch.site.kernel.name))


def _nesting(launch: Launch) -> int:
    return 0 if launch.outer is None else 1 + _nesting(launch.outer)


def _cloned_outputs(launch: Launch) -> list[torch.Tensor]:
    """Copies of what was written, made on the launch's own stream, without waiting."""
    written = [launch.flat[i] for i in sorted(launch.point.written)]
    with BUS.mute(), _on_stream_of(launch), quiet():
        return [_copy(tensor) for tensor in [*written, *launch.returned]]


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
