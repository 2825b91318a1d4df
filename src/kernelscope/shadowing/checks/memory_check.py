"""Writes to somebody else's buffer, and reads of what nobody wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of
from kernelscope.shadowing.graph_execution import Execution
from kernelscope.shadowing.result import ShadowResult

from .foreign_writes import Change, Watch

_LAUNCHES_KEPT = 4096


class MemoryCheck:
    """Looks at what is alive, before and after each launch."""

    def __init__(self, result: ShadowResult) -> None:
        self.result = result
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

    def before(self, index: int, launch: Launch, execution: Execution, alive: Mapping[str, Any]) -> None:
        """Has somebody written to what this kernel is about to read, or nobody?"""
        self._launched[index] = launch.site.kernel.name
        self._launched.pop(index - _LAUNCHES_KEPT, None)
        self._look_for_nothing(index, launch)
        held = {name: value for name in execution.holds if isinstance(value := alive.get(name), torch.Tensor)}
        watch = self._watches[launch.graph_call]
        names = {arg.wrapper_name for arg in launch.site.args if arg.role in ("in", "inout")}
        with quiet():
            watch.look_at(held, index - 1)
            changes = watch.before({name: held[name] for name in names & held.keys()}, index)
        for change in changes:
            self.result.add(self._foreign(index, launch, change))

    def after(self, index: int, launch: Launch, alive: Mapping[str, Any]) -> None:
        """Has this kernel written to what is not its own?"""
        written = [launch.flat[i] for i in launch.point.written] + list(launch.returned)
        tensors = {name: value for name, value in alive.items() if isinstance(value, torch.Tensor)}
        with quiet():
            changes = self._watches[launch.graph_call].after(tensors, written, index)
        for change in changes:
            self.result.add(self._foreign(index, launch, change))

    def _look_for_nothing(self, index: int, launch: Launch) -> None:
        point = launch.point
        own = {launch.storages[place].id for _, place in point.outputs}  # filled by this launch itself
        for place, i in enumerate(point.tensors):
            storage = launch.storages[place]
            if storage.left_uninitialised:
                continue  # an operator passes on what it has no use for: seeds where nothing is dropped
            if (
                i in launch.uninitialised
                and i not in point.written
                and storage.id not in own
                and not storage.written
            ):
                reason = "it is read, but nothing was ever written there"
                arg = launch.site.args[i]
                self.result.add(
                    culprit_of(
                        launch,
                        index,
                        "uninitialised-read",
                        reason,
                        argument=arg.name,
                        buffer=arg.wrapper_name,
                    )
                )

    def _foreign(self, index: int, launch: Launch, change: Change) -> Culprit:
        """Names the writer, where only one kernel can have been it."""
        suspects = [index] if change.is_seen else list(range(change.since + 1, index))
        names = [self._launched.get(i, "?") for i in suspects]
        if len(names) == 1:
            writer = names[0]
            reason = f"{change.name} changed while {writer} ran, which does not declare to write to it"
        else:
            told, reader = ", ".join(names) or "nothing of this graph", launch.site.kernel.name
            reason = f"{change.name} changed before {reader} read it, while one ran of: {told}"
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
