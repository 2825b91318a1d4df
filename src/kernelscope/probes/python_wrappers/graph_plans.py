"""From the first execution of a graph to code that fingerprints the next ones as it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernelscope.generated_code.syntax import uncollected
from kernelscope.probes.bus import BUS
from kernelscope.probes.listener import GraphPlan, GraphReadings, Planner
from kernelscope.probes.own_work import own_fault

from .hooked_source import Codes, Hook
from .planned_source import BEGIN, FLUSH, PlannedLaunch, PlannedSource, Read, Unplannable, When, plan_source
from .wrapper_launches import SeenLaunch


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A wrapper's planned code, and the constants that it uses."""

    codes: Codes
    constants: dict[str, Any]
    writes_inputs: bool


def prepare(
    planner: Planner, graph_call: int, launches: Mapping[str, SeenLaunch], source: str, path: str
) -> PreparedPlan | None:
    """A plan like the execution that has just ended, or None where the next may differ."""
    readings = planner.readings(graph_call, len(launches))
    if readings is None:
        return None
    try:
        planned = _source(source, path, dict(_launches(launches, readings)), planner.when(readings))
    except Unplannable:
        return None
    plan = planner.plan(readings, planned.flushes)
    if plan is None:
        return None
    names = {
        _name(hook): BUS.number(readings.steady_sites[seen.steady.site.id]) for hook, seen in launches.items()
    }
    flushes = {f"{FLUSH}{i}": Hook(flush) for i, flush in enumerate(plan.flushes)}
    return PreparedPlan(
        planned.codes, names | flushes | {BEGIN: Hook(_beginner(plan))}, planned.writes_inputs
    )


def _name(hook: str) -> str:
    return f"{hook}_planned"


def _launches(
    launches: Mapping[str, SeenLaunch], readings: GraphReadings
) -> Iterator[tuple[str, PlannedLaunch]]:
    known: dict[int, Read] = {}

    def is_read_already(view: Read) -> bool:
        """Together with the tensor that it is a view of: the same variable, so that it is one each time."""
        known[view.number] = view
        tensor = readings.views.get(view.number, -1)
        read = known.get(tensor)
        if read is None or tensor in readings.swapped or read.expression != view.expression:
            return False
        readings.swapped[tensor] = view.number
        return True

    for hook, seen in launches.items():
        site, addresses = seen.steady.site, seen.addresses
        if site.id not in readings.steady_sites:
            raise Unplannable(f"{site.kernel.name} was not seen")
        storages = readings.steady_sites[site.id].storage_of

        def read(argument: int, number: int, addresses: Any = addresses, storages: Any = storages) -> Read:
            address = addresses[argument] if argument < len(addresses) else None
            if address is None:
                raise Unplannable("an argument is not a variable or a view of one")
            nbytes = readings.tensors[number].nbytes if number >= 0 else 0
            variable, expression = address
            return Read(number, variable, expression, nbytes, storages.get(argument, -1))

        found, left = (
            tuple(r for reading in read_there[site.id] if not is_read_already(r := read(*reading)))
            for read_there in (readings.before, readings.after)
        )
        written = [i for i, arg in enumerate(site.args) if arg.role in ("out", "inout") and arg.tensor]
        yield (
            hook,
            PlannedLaunch(
                _name(hook),
                found,
                left,
                frozenset(read(i, -1).variable for i in written),
                tuple(read(i, -1) for i in readings.beside.get(site.id, ())),
                frozenset(storages[i] for i in written if i in storages),
            ),
        )


_SOURCES: dict[tuple[str, When], tuple[str, dict[str, PlannedLaunch], PlannedSource]] = {}
_SOURCES_AT_MOST = 128


def _source(source: str, path: str, launches: dict[str, PlannedLaunch], when: When) -> PlannedSource:
    known = _SOURCES.get((path, when))
    if known is not None and known[0] == source and known[1] == launches:
        return known[2]
    with uncollected():
        planned = plan_source(source, path, launches, when=when)
    while len(_SOURCES) >= _SOURCES_AT_MOST:
        del _SOURCES[next(iter(_SOURCES))]
    _SOURCES[path, when] = source, launches, planned
    return planned


def _beginner(plan: GraphPlan) -> Any:
    here = BUS.here

    def begin(graph_call: int) -> Any:
        """What the flushes of this execution are given; the functions of a partitioned graph share it."""
        if graph_call >= 0 and here.execution is None:
            try:
                here.execution, here.plan = plan.begin(graph_call), plan
            except Exception:
                BUS.finding(own_fault("beginning a planned graph call, whose values are not taken"))
        return here.execution

    return begin
