"""Executions of a C++ wrapper that repeat an earlier one: a note of each launch is enough.

The first execution is replayed from its log, launch by launch, which takes Python about 100 microseconds for
each. One whose log has the same bytes, but for times and addresses, would make the same calls.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import COMPACT_CALL, Frame, Graph, SteadySite
from kernelscope.probes.bus import BUS

_AT_MOST = 256  # executions that are remembered: there is one for each set of sizes
_CALLERS_AT_MOST = 8  # of one execution


@dataclass(slots=True)
class Part:
    """Launches that belong to one graph call; `graph` where it begins with them."""

    graph: Graph | None
    numbers: list[int] = field(default_factory=list)  # of their steady sites


Callers = tuple[Frame, ...]  # the lines that called the wrapper


@dataclass(frozen=True, slots=True)
class _Known:
    origin: Callers
    wanted: object  # at that time
    parts: list[Part]


class RepeatedExecutions:
    """The notes of executions that were replayed from their logs."""

    def __init__(self) -> None:
        # By the log's summary, and only then by the callers: to hash a hundred frames takes too long.
        self._known: dict[bytes, tuple[_Known, ...]] = {}

        self._lock = threading.Lock()  # of writers

    def clear(self) -> None:
        with self._lock:
            self._known.clear()

    def forget_lock(self) -> None:
        """In a forked child: the thread that held it is gone."""
        self._lock = threading.Lock()

    def parts(self, summary: bytes, origin: Callers) -> list[Part] | None:
        """Of an execution with this log; None if it has to be replayed."""
        for known in self._known.get(summary, ()):
            if known.wanted is BUS.wanted and (known.origin is origin or known.origin == origin):
                return known.parts
        return None

    def remember(
        self,
        summary: bytes,
        origin: Callers,
        wanted: object,
        launched: Sequence[tuple[Graph | None, SteadySite]],
    ) -> None:
        """An execution was replayed; `launched` has its launches, each with the graph that begins there."""
        if wanted is not BUS.wanted or not launched:
            return
        parts: list[Part] = []
        for graph, steady in launched:
            if graph is not None or not parts:
                parts.append(Part(graph))
            parts[-1].numbers.append(BUS.number(steady))
        with self._lock:
            known = self._known
            others = [each for each in known.pop(summary, ()) if each.wanted is wanted][-_CALLERS_AT_MOST:]
            while len(known) >= _AT_MOST:
                known.pop(next(iter(known)))
            known[summary] = (*others, _Known(origin, wanted, parts))

    @staticmethod
    def note(parts: Sequence[Part], starts: Sequence[int], inputs: Sequence[Any]) -> None:
        here, note, pack, position = BUS.here, BUS.note, COMPACT_CALL.pack, 0
        for part in parts:
            is_own = part.graph is not None
            graph_call = here.graph_call
            if part.graph is not None:
                graph_call = BUS.graph_call(part.graph, BUS.phase(), 0, inputs)
            for number in part.numbers:
                note(pack(number, graph_call, starts[position]))
                position += 1
            if is_own:
                BUS.graph_call_ended(graph_call)


def notes_are_enough() -> bool:
    """For every recording; the end of a launch must not matter either."""
    return BUS.accepts_compact and not BUS.notes_have_ends
