"""The rows of run.db as sites, graphs, graph calls and calls: read when needed, and remembered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from kernelscope.events import Call, Graph, GraphCall, Kernel, Site
from kernelscope.store.planned_calls import spell_out, spell_out_replayed
from kernelscope.text.frames import foreign

from . import codec
from .row_reader import DatabaseReader, StoredFingerprints

_LAYOUT = 11  # the column of a call
_MANY = 500  # values in one IN (…)


class RunRows:
    """What was read of one run so far."""

    def __init__(self, database: Callable[[], DatabaseReader]) -> None:
        self._database = database
        self._fingerprints = StoredFingerprints(database)
        self._graph_calls: dict[int, GraphCall] = {}

    @cached_property
    def sites(self) -> dict[int, tuple[Site, tuple[int, ...]]]:
        """Every site, with the arguments that its noted calls found uninitialised."""
        table = self._database().table
        with self._database().understood():
            kernels = {row[0]: Kernel(*row) for row in table("kernels")}
            args: dict[int, list[Any]] = {}
            for row in table("arguments", "ORDER BY site, position"):
                args.setdefault(row[0], []).append(codec.arg_of(row[2:]))
            found = {
                row[0]: (codec.site_of(row, kernels[row[1]], args.get(row[0], [])), codec.numbers(row[9]))
                for row in table("sites")
            }
            if not self._database().why_not_made_here:
                return found
            return {
                id: (replace(at, origin=foreign(at.origin)), uninitialised)
                for id, (at, uninitialised) in found.items()
            }

    @cached_property
    def graphs(self) -> dict[int, Graph]:
        with self._database().understood():
            return {row[0]: Graph(*row) for row in self._database().table("graphs", "ORDER BY id")}

    def all_graph_calls(self) -> dict[int, GraphCall]:
        with self._database().understood():
            return {row[0]: self._graph_call(row) for row in self._database().table("graph_calls")}

    def graph_call(self, id: int) -> GraphCall | None:
        if id not in self._graph_calls:
            self._read_graph_calls([id])
        return self._graph_calls.get(id)

    def calls_at(self, indices: Sequence[int] | None) -> list[Call]:
        """These calls, or all of them."""
        with self._database().understood():
            if indices is None:
                return self.calls(self._database().table("calls", "ORDER BY id"))
            return self.calls(self._spread("calls", "id", list(indices)))

    def calls(self, rows: list[codec.Row]) -> list[Call]:
        """The calls of these rows, with all that other tables hold of them."""
        with self._database().understood():
            self._read_graph_calls([row[2] for row in rows if row[2] >= 0])
            sites, graph_calls = self.sites, self._graph_calls
            calls = [
                codec.call_of(row, sites[row[1]][0], graph_calls.get(row[2]), sites[row[1]][1])
                for row in rows
            ]
            self._add_details({call.index: call for call in calls})
            self._add_layouts(calls, rows)
            if unwritten := self._database().unwritten:
                for call in calls:
                    call.is_unwritten = call.index in unwritten
            return calls

    @cached_property
    def _layouts(self) -> dict[int, codec.Layout]:
        return {row[0]: codec.layout_of(row) for row in self._database().table("layouts")}

    def _add_layouts(self, calls: list[Call], rows: list[codec.Row]) -> None:
        """What stands in the layout of a call and its graph call, where it has no details of its own."""
        planned = [(call, row[_LAYOUT]) for call, row in zip(calls, rows, strict=True) if row[_LAYOUT:]]
        planned = [(call, layout) for call, layout in planned if layout is not None and call.pre is None]
        self._add_replays([(call, layout) for call, layout in planned if call.replay >= 0])
        planned = [(call, layout) for call, layout in planned if call.replay < 0]
        wanted = list({call.graph_call for call, _ in planned})
        first: dict[int, int] = dict(self._spread("first_slots", "graph_call", wanted))
        for call, layout in planned:
            call.scalars = self._layouts[layout].scalars
            if call.graph_call in first:
                call.fingerprinter = self._fingerprints
                spell_out(call, self._layouts[layout], first[call.graph_call])

    def _add_replays(self, calls: list[tuple[Call, int]]) -> None:
        """What stands in the layout of a call that a CUDA graph replayed, and in that replay."""
        if not calls:
            return
        ends = min(call.index for call, _ in calls), max(call.index for call, _ in calls)
        since = "(SELECT max(call) FROM replays WHERE call <= ?)"
        replays = self._database().table("replays", f"WHERE call BETWEEN {since} AND ? ORDER BY call", ends)
        first_calls = [first for first, _ in replays]
        for call, layout in calls:
            first_call, slot = replays[bisect_right(first_calls, call.index) - 1]
            if slot is not None:
                call.fingerprinter = self._fingerprints
            spell_out_replayed(call, self._layouts[layout], -1 if slot is None else slot, first_call)

    def _add_details(self, calls: dict[int, Call]) -> None:
        for row in self._spread("details", "call", list(calls)):
            if row[0] in calls:
                codec.add_details(calls[row[0]], row, self._fingerprints)
        for index, message in self._spread("errors", "call", list(calls)):
            if index in calls:
                calls[index].error = message

    def _read_graph_calls(self, wanted: list[int]) -> None:
        missing = list({id for id in wanted if id not in self._graph_calls})
        with self._database().understood():
            for row in self._spread("graph_calls", "id", missing):
                self._graph_calls[row[0]] = self._graph_call(row)

    def _graph_call(self, row: codec.Row) -> GraphCall:
        id, graph, thread, stream, phase, step, *newer = row
        parent = -1 if not newer or newer[0] is None else newer[0]
        return GraphCall(id, self.graphs[graph], thread, stream, phase, step, parent)

    def _spread(self, table: str, column: str, wanted: list[int]) -> list[codec.Row]:
        """Rows for these keys: by key when they are few, in one sweep when they are many."""
        if not wanted:
            return []
        read = self._database().table
        if len(wanted) > 20 * _MANY:
            return read(table, f"WHERE {column} BETWEEN ? AND ?", (min(wanted), max(wanted)))
        pieces = [wanted[i : i + _MANY] for i in range(0, len(wanted), _MANY)]
        return [
            row
            for keys in pieces
            for row in read(table, f"WHERE {column} IN ({', '.join('?' * len(keys))})", keys)
        ]
