"""Calls that say little themselves: what their graph call, or the replay that made them, says of them."""

from __future__ import annotations

from typing import Any, Protocol

from kernelscope.events import Call, Replay

_STORAGE_BITS = 24  # a graph call that was planned numbers its storages itself, and so does a replay
_REPLAYS = 1 << 38  # their numbers come after those of all graph calls


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


class ReplayedLayout(CallLayout, Protocol):
    """The same of a launch inside a CUDA graph."""

    @property
    def uninitialised(self) -> tuple[int, ...]: ...
    @property
    def poison(self) -> dict[int, int] | None: ...
    @property
    def scalars(self) -> tuple[Any, ...]: ...


def spell_out(call: Call, layout: CallLayout, first: int) -> None:
    """Fill in what a call of this layout does not say itself; `first` is the first slot of its graph call."""
    if layout.pre is None or layout.post is None:
        return
    call.pre = _from(first, layout.pre)
    call.post = None if call.error else _from(first, layout.post)
    _fill_in_memory(call, layout, call.graph_call + 1)


def spell_out_replayed(call: Call, layout: ReplayedLayout, first: int, first_call: int) -> None:
    """The same for a call of a replay whose first call has this index; `first` is -1 without fingerprints."""
    call.uninitialised, call.scalars = layout.uninitialised, layout.scalars
    if first >= 0:
        call.pre, call.post = _from(first, layout.pre), _from(first, layout.post)
        call.poison = _from(first, layout.poison)
    _fill_in_memory(call, layout, _REPLAYS + first_call)


def replayed_call(replay: Replay, index: int, first_call: int) -> Call:
    """The call with this index, of a replay whose first call has that index."""
    launch = replay.graph.launches[index - first_call]
    call = Call(
        index, launch.site, replay.graph_call, replay.step, replay.number, replay.thread, replay.stream,
        launch.phase, replay.start_ns,
    )  # fmt: skip
    if replay.first >= 0:
        call.fingerprinter = replay.fingerprinter
    spell_out_replayed(call, launch, replay.first, first_call)
    return call


def _from(first: int, slots: dict[int, int] | None) -> dict[int, int] | None:
    return None if slots is None else {i: first + slot for i, slot in slots.items()}


def _fill_in_memory(call: Call, layout: CallLayout, number: int) -> None:
    """Storages that are counted within something that has this number."""
    call.storages = tuple((number << _STORAGE_BITS) + s for s in layout.storages)
    call.epochs, call.offsets = layout.epochs, layout.offsets
