"""From the calls of one graph call to a plan of the fingerprints that the next ones take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kernelscope.events import Call, SteadySite
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.plans import CannotPlan, Plan, in_one_pass, plan
from kernelscope.probes.bus import BUS
from kernelscope.probes.listener import GraphPlan, GraphReadings
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.python_wrappers.planned_source import When

from .observers import Late


class PlannedSink(Protocol):
    """Where the calls of a recording go, as far as a plan has to know it."""

    def last_calls(self, graph_call: int, launches: int) -> list[Call] | None:
        """The calls of a graph call that has just ended; None if not all of them are there."""

    def planned(self, graph_call: int, first: int, rows: int) -> None:
        """The fingerprints of this graph call will be in so many slots from `first` on."""


class PlannedGraph:
    """A plan whose graph calls the sink knows of."""

    def __init__(self, made: Plan, sink: PlannedSink) -> None:
        self.flushes = made.flushes
        self._plan = made
        self._planned = sink.planned

    def begin(self, graph_call: int) -> Any:
        execution, first = self._plan.begin()
        self._planned(graph_call, first, self._plan.rows)
        return execution

    def ended(self, execution: Any, *, broken_off: bool) -> None:
        self._plan.ended(execution, broken_off=broken_off)


_Takers = tuple[Late | None, Fingerprinter | None]


class RecordingPlanner:
    """Plans the fingerprints of a recording; `takers` gives what takes them at this moment."""

    def __init__(
        self, sink: PlannedSink, takers: Callable[[], tuple[Late | None, Fingerprinter | None]]
    ) -> None:
        self._sink = sink
        self._takers = takers

    def when(self, readings: GraphReadings) -> When:
        late, _ = self._takers()
        if late is not None:
            return late.plans
        # On a CPU a launch may take long, and be the last one; on a GPU it is only enqueued.
        on_gpu = all(spec.device.startswith("cuda") for spec in readings.tensors)
        return "while small" if on_gpu else "before the next"

    def readings(self, graph_call: int, launches: int) -> GraphReadings | None:
        late, fingerprinter = self._takers()
        calls = self._sink.last_calls(graph_call, launches)
        if calls is None:
            return None
        if late is not None:
            return late.readings(calls)
        if fingerprinter is None or fingerprinter.fallback_count:
            return None
        return readings_of(calls, fingerprinter)

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> GraphPlan | None:
        late, fingerprinter = self._takers()
        if late is not None:
            return late.plan(readings, flushes)
        assert fingerprinter is not None
        try:
            made = plan(fingerprinter, readings.tensors, flushes, readings.swapped, _flush_failed)
        except CannotPlan:
            return None
        return PlannedGraph(made, self._sink)


def _flush_failed() -> None:
    BUS.finding(own_fault("fingerprinting as planned"))


def readings_of(calls: list[Call], fingerprinter: Fingerprinter | None = None) -> GraphReadings | None:
    """What the calls of one graph call read, and what one pass can read together; None if incomplete."""
    readings = GraphReadings()
    numbers: dict[int, int] = {}  # by slot
    storages: dict[int, int] = {}
    first: dict[tuple[int, int, int], int] = {}  # that read a version
    for call in calls:
        site = call.site
        if call.pre is None or call.post is None or call.error or site.id in readings.steady_sites:
            return None
        versions = _versions(call)
        for slots, taken in ((call.pre, readings.before), (call.post, readings.after)):
            new = taken[site.id] = []
            for i, slot in slots.items():
                if slot in numbers:
                    continue
                spec = site.args[i].tensor
                assert spec is not None
                number = numbers[slot] = len(numbers)
                readings.tensors.append(spec)
                new.append((i, number))
                version = versions.get((i, slots is call.post))
                known = number if version is None else first.setdefault(version, number)
                if (
                    fingerprinter is not None
                    and known != number
                    and in_one_pass(fingerprinter, readings.tensors[known], spec)
                ):
                    readings.views[number] = known
        readings.steady_sites[site.id] = SteadySite(
            site,
            call.uninitialised,
            {i: numbers[slot] for i, slot in call.pre.items()},
            {i: numbers[slot] for i, slot in call.post.items()},
            tuple(storages.setdefault(s, len(storages)) for s in call.storages),
            call.epochs,
            call.offsets,
        )
    return readings


def _versions(call: Call) -> dict[tuple[int, bool], tuple[int, int, int]]:
    """Which memory, written how often, from where on: by argument, as found and as left by the call."""
    args = call.site.args
    found: dict[tuple[int, bool], tuple[int, int, int]] = {}
    places = zip(call.site.readable, call.storages, call.epochs, call.offsets, strict=False)
    for i, storage, epoch, offset in places:
        found[i, False] = storage, epoch, offset
        if args[i].role in (
            "out",
            "inout",
        ):  # memory that is written through several counts further, and is left out
            found[i, True] = storage, epoch + 1, offset
    return found
