"""Which kernels, copies and fills of a GPU belong to recorded calls: by where the host launched them.

A launch has the number of the function of CUDA that made it, and of the operator or range around that. These
are two countings: the same number in both means nothing. Inside a CUDA graph, what was launched is known from
its capture: there each launch of a call is a range, and a replay executes them in one function of CUDA.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kernelscope.events import (
    CAPTURE_BEGINS,
    CAPTURE_ENDS,
    CAPTURED_RANGE,
    INPUTS_RANGE,
    OWN_RANGE,
    READ_REPLAY,
    REPLAY_RANGE,
    UNSEEN_REPLAY,
)

from .claims import COMPILED, Found, HostEvent, Rest, is_call, is_compiling

_LAUNCHES = re.compile(r"(cuda|cu|hip)(Module|Ext)?(Launch|Memcpy|Memset)")  # functions that enqueue work


class DeviceEvent(NamedTuple):
    """A kernel, copy or fill on a GPU."""

    name: str
    correlation: int  # of the function of CUDA that launched it
    linked: int  # of the operator or range around that; 0: none
    start: int  # nanoseconds
    end: int


class _Moment(NamedTuple):
    """When the host launched something."""

    thread: int
    time: int


def on_device(
    host: Sequence[HostEvent], functions: Sequence[HostEvent], device: Sequence[DeviceEvent]
) -> Found:
    """`host` are operators and ranges, `functions` those of CUDA."""
    ranges = {event.correlation: event for event in host}
    by_number = {event.correlation: event for event in functions}
    moments = [_moment(work, by_number.get(work.correlation), ranges.get(work.linked)) for work in device]
    captured = _captured(host, functions)
    asked = {moment for moment in moments if moment is not None}
    asked |= {_Moment(event.thread, event.start) for launches in captured.values() for event in launches}
    around = _around(host, asked)
    in_calls = {
        number: [_is_claimed(around[event.thread, event.start]) for event in launches]
        for number, launches in captured.items()
    }
    claimed = _replayed(device, moments, around, in_calls)
    launches = nanoseconds = compiling = copies = 0
    rest = Rest()
    for place, (work, moment) in enumerate(zip(device, moments, strict=True)):
        names = around[moment] if moment is not None else ()
        if claimed.get(place, any(map(is_call, names))):
            launches += 1
            nanoseconds += work.end - work.start
        elif OWN_RANGE in names:
            pass
        elif is_compiling(names):
            compiling += 1
        elif INPUTS_RANGE in names:
            copies += 1
        else:
            function = by_number.get(work.correlation)
            rest.add(
                work.name, _launcher(names) or (function.name if function else ""),
                any(name.startswith(COMPILED) for name in names), work.end - work.start,
            )  # fmt: skip
    return Found(launches, nanoseconds, rest.listed(), compiling, copies)


def _moment(work: DeviceEvent, function: HostEvent | None, around: HostEvent | None) -> _Moment | None:
    """The operator has the thread for certain; the function of CUDA the time."""
    if function is None:
        return _Moment(around.thread, around.start) if around is not None else None
    if around is not None and work.linked and around.start <= function.start <= around.end:
        return _Moment(around.thread, function.start)
    return _Moment(function.thread, function.start)


def _around(host: Iterable[HostEvent], asked: Iterable[_Moment]) -> dict[tuple[int, int], tuple[str, ...]]:
    """The names of the operators and ranges around each moment, the outermost first."""
    by_thread: dict[int, list[HostEvent]] = defaultdict(list)
    times: dict[int, set[int]] = defaultdict(set)
    for event in host:
        by_thread[event.thread].append(event)
    for moment in asked:
        times[moment.thread].add(moment.time)
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for thread, mine in times.items():
        events = sorted(by_thread[thread], key=lambda event: (event.start, -event.end))
        stack: list[HostEvent] = []
        place = 0
        for time in sorted(mine):
            while place < len(events) and events[place].start <= time:
                stack = [event for event in stack if event.end >= events[place].start]
                stack.append(events[place])
                place += 1
            stack = [event for event in stack if event.end >= time]
            found[thread, time] = tuple(event.name for event in stack)
    return found


def _captured(host: Iterable[HostEvent], functions: Iterable[HostEvent]) -> dict[str, list[HostEvent]]:
    """By the number of a capture: what was launched in it, in this order."""
    begins, ends = {}, {}
    for event in host:
        if event.name.startswith(CAPTURE_BEGINS):
            begins[event.name.removeprefix(CAPTURE_BEGINS)] = event.end
        elif event.name.startswith(CAPTURE_ENDS):
            ends[event.name.removeprefix(CAPTURE_ENDS)] = event.start
    launching = sorted((event for event in functions if _enqueues(event)), key=lambda event: event.start)
    starts = [event.start for event in launching]
    return {
        number: launching[bisect_left(starts, start) : bisect_right(starts, ends[number])]
        for number, start in begins.items()
        if number in ends
    }


def _enqueues(event: HostEvent) -> bool:
    return _LAUNCHES.match(event.name) is not None


def _is_claimed(names: Iterable[str]) -> bool:
    return any(name == CAPTURED_RANGE or is_call(name) for name in names)


def _replayed(
    device: Sequence[DeviceEvent],
    moments: Sequence[_Moment | None],
    around: Mapping[tuple[int, int], tuple[str, ...]],
    in_calls: Mapping[str, Sequence[bool]],
) -> dict[int, bool]:
    """Of what replays of CUDA graphs executed (by its place in `device`): whether it belongs to a call."""
    replays: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, (work, moment) in enumerate(zip(device, moments, strict=True)):
        names = around[moment] if moment is not None else ()
        for name in names:
            if name.startswith((REPLAY_RANGE, UNSEEN_REPLAY)):
                replays[name, work.correlation].append(place)
    claimed = {}
    for (name, _), places in replays.items():
        known = _of_nodes(name, len(places)) or in_calls.get(name.removeprefix(REPLAY_RANGE), ())
        places.sort(key=lambda place: device[place].start)
        for place, is_claimed in zip(places, _fitting(known, len(places)), strict=True):
            claimed[place] = is_claimed
    return claimed


def _of_nodes(name: str, count: int) -> Sequence[bool]:
    """Of a graph whose nodes were read, each is a call; more was executed where some are conditions."""
    nodes = int(name.removeprefix(READ_REPLAY)) if name.startswith(READ_REPLAY) else 0
    return [True] * nodes if count <= nodes else ()


def _fitting(known: Sequence[bool], count: int) -> Iterator[bool]:
    """In doubt, when some launches of the capture are no calls and the numbers differ, none is claimed."""
    for place in range(count):
        yield bool(known) and (all(known) or (len(known) == count and known[place]))


def _launcher(names: Sequence[str]) -> str:
    for name in reversed(names):
        if name.startswith(UNSEEN_REPLAY):  # also one whose nodes were read
            return UNSEEN_REPLAY.removeprefix("kernelscope: ")
        if "::" in name or name.startswith(REPLAY_RANGE):
            return name.removeprefix("kernelscope: ")
    return ""
