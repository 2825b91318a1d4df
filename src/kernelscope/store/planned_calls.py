"""Calls whose fingerprints were planned: what their graph call and their layout say of them."""

from __future__ import annotations

from typing import Protocol

from kernelscope.events import Call

_STORAGE_BITS = 24  # a graph call that was planned numbers its storages itself


class CallLayout(Protocol):
    """Where the fingerprints of a call are, counted from the first of its graph call; and its memory."""

    @property
    def pre(self) -> dict[int, int] | None: ...
    @property
    def post(self) -> dict[int, int] | None: ...
    @property
    def storages(self) -> tuple[int, ...]: ...
    @property
    def epochs(self) -> tuple[int, ...]: ...
    @property
    def offsets(self) -> tuple[int, ...]: ...


def spell_out(call: Call, layout: CallLayout, first: int) -> None:
    """Fill in what a call of this layout does not say itself; `first` is the first slot of its graph call."""
    if layout.pre is None or layout.post is None:
        return
    call.pre = {i: first + slot for i, slot in layout.pre.items()}
    call.post = None if call.error else {i: first + slot for i, slot in layout.post.items()}
    call.storages = tuple((call.graph_call + 1 << _STORAGE_BITS) + s for s in layout.storages)
    call.epochs, call.offsets = layout.epochs, layout.offsets
