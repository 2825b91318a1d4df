"""Writes to buffers that are not the kernel's outputs, and reads of uninitialised memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.node_kinds import base_of, is_uninitialised

from .foreign_writes import Change, Watch

_LAUNCHES_KEPT = 4096


class MemoryCheck:
    """Looks at what is alive, before and after each launch."""

    def __init__(self) -> None:
        self._watches: dict[int, Watch] = {}  # by graph call
        self._launched: dict[int, str] = {}  # names of the last kernels, by index

    def begin(self, graph_call: int) -> None:
        self._watches[graph_call] = Watch()

    def enter(self, graph_call: int, names: Iterable[str]) -> None:
        """The body of a loop or branch: its variables are new ones each time."""
        for name in names:
            self._watches[graph_call].marks.pop(name, None)

    def forget(self, graph_call: int) -> None:
        self._watches.pop(graph_call, None)

    def before(
        self, index: int, launch: Launch, state: GraphCallState, alive: Mapping[str, Any]
    ) -> list[Culprit]:
        """What this kernel is about to read, and was changed by an undeclared write, or never written."""
        self._launched[index] = launch.site.kernel.name
        self._launched.pop(index - _LAUNCHES_KEPT, None)
        held = {name: value for name in state.holds if isinstance(value := alive.get(name), torch.Tensor)}
        watch = self._watches[launch.graph_call]
        names = {arg.wrapper_name for arg in launch.site.args if arg.role in ("in", "inout")}
        with quiet():
            changes = watch.before(held, names & held.keys(), index)
        found = [self._foreign(index, launch, change) for change in changes]
        return [*_uninitialised_reads(index, launch, state), *found]

    def after(self, index: int, launch: Launch, alive: Mapping[str, Any]) -> list[Culprit]:
        """The buffers that this kernel changed without declaring to write to them."""
        written = [launch.flat[i] for i in launch.point.written] + list(launch.returned)
        tensors = {name: value for name, value in alive.items() if isinstance(value, torch.Tensor)}
        with quiet():
            changes = self._watches[launch.graph_call].after(tensors, written, index)
        return [self._foreign(index, launch, change) for change in changes]

    def _foreign(self, index: int, launch: Launch, change: Change) -> Culprit:
        """Names the writer, where there is only one candidate."""
        suspects = [index] if change.is_seen else list(range(change.since + 1, index))
        names = [self._launched.get(i, "?") for i in suspects]
        if len(names) == 1:
            writer = names[0]
            reason = f"{change.name} changed while {writer} ran, which does not declare a write to it"
        else:
            ran, reader = ", ".join(names) or "no kernel of this graph", launch.site.kernel.name
            reason = f"{change.name} changed before {reader} read it; since its last write ran: {ran}"
            writer = "unknown"
        passed = [a.name for a in launch.site.args if a.wrapper_name == change.name and change.is_seen]
        return culprit_of(
            launch,
            suspects[0] if suspects else index,
            "foreign-write",
            reason,
            kernel_name=writer,
            argument=passed[0] if passed else "",
            buffer=change.name,
        )


def _uninitialised_reads(index: int, launch: Launch, state: GraphCallState) -> Iterator[Culprit]:
    point = launch.point
    own = {launch.storages[place].id for _, place in point.outputs}  # filled by this launch itself
    for place, i in enumerate(point.tensors):
        storage, arg = launch.storages[place], launch.site.args[i]
        # An operator passes on what it has no use for: seeds where nothing is dropped.
        is_known = storage.left_uninitialised or storage.written or storage.id in own or arg.role == "unused"
        if i in launch.uninitialised and i not in point.written and not is_known:
            if not launch.flat[i].numel() or _is_meant(state, arg.wrapper_name):
                continue
            reason = f"{arg.name} is read, but nothing was ever written to it"
            names = {"argument": arg.name, "buffer": arg.wrapper_name}
            yield culprit_of(launch, index, "uninitialised-read", reason, **names)


def _is_meant(state: GraphCallState, name: str) -> bool:
    """Whether the program itself reads uninitialised memory here: `torch.empty(3).uniform_()`."""
    node = state.node_of(name, None)
    return node is not None and is_uninitialised(base_of(node))
