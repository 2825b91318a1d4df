"""Writes to buffers that are not the kernel's outputs, and reads of uninitialised memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, Ran, culprit_of
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.node_kinds import base_of, is_uninitialised

from .foreign_writes import Change, Watch
from .planned_writes import Launched, Plan, PlannedWatch

_LAUNCHES_KEPT = 4096


@dataclass(slots=True)
class _GraphCall:
    path: str
    watch: Watch | PlannedWatch
    launched: list[Launched] = field(default_factory=list)
    ran: dict[int, Ran] = field(default_factory=dict)  # by index: what is needed to name a launch later


class MemoryCheck:
    """Looks at what is alive, before and after each launch."""

    def __init__(self) -> None:
        self._calls: dict[int, _GraphCall] = {}
        self._plans: dict[str, Plan | None] = {}  # by the wrapper's path; None: it does not follow a plan
        self._launched: dict[int, str] = {}  # names of the last kernels, by index

    def begin(self, graph_call: int, path: str, *, can_wait: bool) -> None:
        """`can_wait`: what is wrong need not be known before the graph is over."""
        plan = self._plans.get(path) if can_wait else None
        self._calls[graph_call] = _GraphCall(path, Watch() if plan is None else PlannedWatch(plan))

    def lowered(self, path: str) -> None:
        """The code in this file is new."""
        self._plans.pop(path, None)

    def enter(self, graph_call: int, names: Iterable[str]) -> None:
        """The body of a loop or branch: its variables are new ones each time."""
        call = self._call(graph_call)
        self._plans[call.path] = None  # it may be another branch next time
        for name in names:
            call.watch.marks.pop(name, None)

    def is_planned(self, graph_call: int) -> bool:
        """What is wrong in it is said when it is over."""
        return isinstance(self._call(graph_call).watch, PlannedWatch)

    def before(
        self, index: int, launch: Launch, state: GraphCallState, alive: Mapping[str, Any]
    ) -> list[Culprit]:
        """What this kernel is about to read, and was changed by an undeclared write, or never written."""
        self._launched[index] = launch.site.kernel.name
        self._launched.pop(index - _LAUNCHES_KEPT, None)
        names = state.holds.written()
        held = {name: value for name in names if isinstance(value := alive.get(name), torch.Tensor)}
        call = self._call(launch.graph_call)
        launched = launch.site.kernel.name, launch.site.line
        call.launched.append(launched)
        reads = {arg.wrapper_name for arg in launch.site.args if arg.role in ("in", "inout")} & held.keys()
        changes: list[Change] = []
        with quiet():
            if isinstance(call.watch, PlannedWatch):
                call.ran[index] = Ran(launch.site, launch.phase)
                written = [launch.flat[i] for i in launch.point.written]
                call.watch.before(held, reads, written, index, launched)
            else:
                changes = call.watch.before(held, reads, index)
        found = [self._foreign(index, launch, change) for change in changes]
        return [*_uninitialised_reads(index, launch, state), *found]

    def after(self, index: int, launch: Launch, alive: Mapping[str, Any]) -> list[Culprit]:
        """The buffers that this kernel changed without declaring to write to them."""
        written = [launch.flat[i] for i in launch.point.written] + list(launch.returned)
        tensors = {name: value for name, value in alive.items() if isinstance(value, torch.Tensor)}
        watch = self._call(launch.graph_call).watch
        with quiet():
            if isinstance(watch, PlannedWatch):
                watch.after(tensors, written, index)
                return []
            changes = watch.after(tensors, written, index)
        return [self._foreign(index, launch, change) for change in changes]

    def failed(self, index: int, launch: Launch, alive: Mapping[str, Any]) -> list[Culprit]:
        """A launch ended the graph: this is the last chance to look at its variables."""
        watch = self._call(launch.graph_call).watch
        if not isinstance(watch, PlannedWatch):
            return []
        watch.follows_plan = False
        return [*self.after(index, launch, alive), *self.returned(launch.graph_call)]

    def lose(self, graph_call: int) -> None:
        """A launch was not followed to its end: whatever it left is not known, and not suspicious."""
        call = self._calls.get(graph_call)
        if call is not None:
            self._plans[call.path] = None
            self._calls[graph_call] = _GraphCall("", Watch())

    def returned(self, graph_call: int) -> list[Culprit]:
        """A graph is over: what changed in it, if that was not said at once."""
        call = self._calls.pop(graph_call, None)
        if call is None:
            return []
        watch = call.watch
        if isinstance(watch, Watch):
            if (
                call.path
                and call.path not in self._plans
                and (plan := Plan.of(watch, call.launched)) is not None
            ):
                self._plans[call.path] = plan
            return []
        with quiet():
            changes = watch.changes()
        if changes:  # the next execution is watched launch by launch, and names the writer
            self._plans.pop(call.path, None)
        elif not watch.is_whole:
            self._plans[call.path] = None
        return [self._foreign(index, call.ran[index], change) for change, index in changes]

    def close(self) -> list[Culprit]:
        """The program is over: graph calls that an error ended have not returned."""
        return [culprit for graph_call in list(self._calls) for culprit in self.returned(graph_call)]

    def _call(self, graph_call: int) -> _GraphCall:
        """After a launch that failed, and whose failure was caught, a new one."""
        return self._calls.setdefault(graph_call, _GraphCall("", Watch()))

    def _foreign(self, index: int, launch: Launch | Ran, change: Change) -> Culprit:
        """Names the writer, where there is only one candidate."""
        suspects, site = list(change.suspects), launch.site
        names = [self._launched.get(i, "?") for i in suspects]
        about: dict[str, Any] = {"buffer": change.name}
        if len(names) == 1:
            reason = f"{change.name} changed while {names[0]} ran, which does not declare a write to it"
            about |= {"kernel_name": names[0]}
        else:
            ran = f"one of these kernels ran: {', '.join(names)}" if names else "no kernel of this graph ran"
            read = f" before {site.kernel.name} read it" if change.is_read else ""
            reason = f"{change.name} changed{read}, while {ran}"
            reason += "; none of them declares a write to it" if names else ""
            about |= {"kernel_name": "unknown", "origin": ()}  # the line of none of them
        is_last = suspects == [index]
        passed = [a.name for a in site.args if a.wrapper_name == change.name and is_last]
        about["argument"] = passed[0] if passed else ""
        return culprit_of(launch, suspects[0] if suspects else index, "foreign-write", reason, **about)


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
