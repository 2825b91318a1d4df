"""Which of the operators in a profiler's trace belong to recorded calls."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kernelscope.events import CPP_RANGE, OWN_RANGE, RANGE_PREFIX, STOPPED_RANGE
from kernelscope.model.audit import Outside

COMPILED = "## Call CompiledFxGraph"
_COMPILING = "(dynamo_timed)"
_PROCESS_GROUP = re.compile("(gloo|nccl|xccl|ucc|mpi):[a-z]")  # its range around what a collective computes
_CAPTURING = (
    "compiled_autograd"  # torch's range around making a graph of a backward pass, not around running it
)
READS_A_NUMBER = "aten::_local_scalar_dense"  # in compiled code: the host decides on a branch or a size


class HostEvent(NamedTuple):
    """A range or an operator on a thread of the host."""

    name: str
    thread: int
    start: int  # nanoseconds
    end: int
    correlation: int = 0


class Found(NamedTuple):
    launches: int
    nanoseconds: int
    outside: tuple[Outside, ...]
    compiling: int
    copies: int = 0  # into the inputs of CUDA graphs


class Rest:
    """What belongs to no call, by name."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, bool], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, name: str, launcher: str, in_compiled: bool, nanoseconds: int) -> None:
        entry = self._found[name, launcher, in_compiled]
        entry[0] += 1
        entry[1] += nanoseconds

    def listed(self) -> tuple[Outside, ...]:
        found = [
            Outside(name, launcher, count, nanoseconds / 1e9, in_compiled)
            for (name, launcher, in_compiled), (count, nanoseconds) in self._found.items()
        ]
        return tuple(sorted(found, key=lambda each: (not each.in_compiled_code, -each.seconds, each.name)))


def is_call(name: str) -> bool:
    return name.startswith(RANGE_PREFIX)


def is_compiling(names: Iterable[str]) -> bool:
    """Whether one of these ranges is around something that is being compiled."""
    return any(name.endswith(_COMPILING) or name == _CAPTURING for name in names)


def operators(events: Iterable[HostEvent], is_work: Callable[[str], bool]) -> Found:
    """On a CPU: each call is a launch; so is each operator outside of calls that has no call inside of it."""
    launches = nanoseconds = compiling = 0
    rest = Rest()
    by_thread: dict[int, list[HostEvent]] = defaultdict(list)
    for event in events:
        by_thread[event.thread].append(event)
    for mine in by_thread.values():
        mine.sort(key=lambda event: (event.start, -event.end))
        # Where a call begins, and where an operator ends before it has computed anything.
        calls = sorted(event.start for event in mine if is_call(event.name) or event.name == STOPPED_RANGE)
        around: list[HostEvent] = []
        for event in mine:
            while around and around[-1].end <= event.start:
                around.pop()
            names = [each.name for each in around]
            if is_call(event.name):
                if not any(map(is_call, names)):  # a custom operator's own launches are a part of it
                    nanoseconds += event.end - event.start
                launches += 1
            elif is_work(event.name) and not any(map(_is_counted, names)):
                holds_a_call = bisect_right(calls, event.end) > bisect_right(calls, event.start)
                # Functorch's and functionalization's layers pass an operator on under its own name.
                in_another = any(
                    is_work(each.name) and (each.name == event.name or not _holds(each, calls))
                    for each in around
                )
                if holds_a_call or in_another:
                    pass  # counted by what is inside of it, or as a part of what it is inside of
                elif is_compiling(names):
                    compiling += 1
                else:
                    in_compiled = any(name.startswith(COMPILED) for name in names)
                    if not (in_compiled and event.name == READS_A_NUMBER):
                        rest.add(event.name, _last_annotation(names), in_compiled, event.end - event.start)
            around.append(event)
    return Found(launches, nanoseconds, rest.listed(), compiling)


def _is_counted(name: str) -> bool:
    """Whether what runs in this range belongs to it: a call, a collective, the recorder's own work."""
    return is_call(name) or name in (OWN_RANGE, CPP_RANGE) or _PROCESS_GROUP.match(name) is not None


def _holds(event: HostEvent, calls: list[int]) -> bool:
    return bisect_right(calls, event.end) > bisect_right(calls, event.start)


def _last_annotation(names: list[str]) -> str:
    """What an operator ran inside of, as far as a person gave it a name."""
    return next((name for name in reversed(names) if "::" not in name and not name.startswith("##")), "")
