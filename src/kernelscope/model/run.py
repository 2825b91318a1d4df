"""One recorded execution."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope.config import strings
from kernelscope.events import (
    COMPACT_CALL,
    Call,
    CompactCall,
    Finding,
    Graph,
    GraphCall,
    Kernel,
    Mark,
    RunInfo,
    Site,
    SteadySite,
)
from kernelscope.stages.records import Record

from .call import KernelCall
from .derived_findings import findings_in
from .kinds import OperatorNotes, view_of
from .labels import TensorLabel
from .listing import listing

if TYPE_CHECKING:
    from kernelscope.stages import StagedGraph, Stages

# A graph that outlasted two recordings makes notes that nobody can read any more.
_UNKNOWN = SteadySite(Site(-1, Kernel(-1, "(unknown)", "unknown", "unknown"), ()), ())
_STORAGE_BITS = 24  # a graph call that was planned numbers its storages itself


class Run:
    """Everything that one recording saw: `calls`, `kernels`, `graphs`, `findings`.

    Example:
        with kernelscope.record(values="hash") as run:
            compiled(x)
        print(run)
        run.select(kind="cpp", kernel="*layer_norm*")
    """

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.steady_sites: Mapping[int, SteadySite] = {}  # what the numbers in compact calls stand for
        self.entries: list[Call | CompactCall] = []  # as recorded; `records_of_calls` spells them out
        self._end = sys.maxsize  # entries from here on came when the recording had closed
        self.errors_of_compact: dict[int, str] = {}  # by id of the entry
        self.first_slots: dict[int, int] = {}  # by graph call, where its fingerprints were planned
        self.fingerprinter: Any = None  # reads slots
        self._spelled_out = 0
        self._places: dict[int, int] = {}  # of calls, by key
        self.graph_calls: dict[int, GraphCall] = {}
        self.noted: list[Finding] = []
        self.marks: list[Mark] = []
        self.compiled: list[Record] = []  # what the compiler did, with stages=True
        # Of torch, that are not its defaults: by module, and "environment".
        self.compiler_settings: dict[str, dict[str, Any]] = {}
        self.originals: dict[int, tuple[Any, ...]] = {}
        self.kwargs: dict[int, dict[str, Any]] = {}
        self.records: dict[int, dict[str, Any]] = {}
        self.logs: dict[int, dict[str, Any]] = {}
        self.notes: dict[int, OperatorNotes] = {}
        self.operators: dict[int, Any] = {}
        self.labels: dict[tuple[int, int], TensorLabel] = {}
        self.stack_traces: dict[int, tuple[str, str | None]] = {}
        self._views: list[KernelCall] = []
        self._derived: tuple[int, list[Finding]] = (0, [])
        self._stages: tuple[int, Stages] | None = None  # of so many records

    @property
    def records_of_calls(self) -> list[Call]:
        """Every call in full."""
        entries: list[Any] = self.entries
        for place in range(self._spelled_out, len(self)):
            entry = entries[place]
            if isinstance(entry, bytes):
                entry = entries[place] = self._in_full(entry)
            else:
                self._places[entry.key] = place
            entry.index = place
            self._spelled_out = place + 1
        # Another thread may have noted one more since, or when the recording had closed.
        return entries if len(entries) == self._spelled_out else entries[: self._spelled_out]

    def place_of(self, key: int) -> int:
        """Where the call stands that had this number while it was recorded, or -1."""
        return self._places.get(key, -1) if key >= 0 else -1

    def _in_full(self, entry: CompactCall) -> Call:
        number, graph_call, when = COMPACT_CALL.unpack(entry)
        steady = self.steady_sites.get(number, _UNKNOWN)
        error = self.errors_of_compact.pop(id(entry), "")
        call = Call(
            -1, steady.site, graph_call, start_ns=when, uninitialised=steady.uninitialised, error=error
        )
        first = self.first_slots.get(graph_call)
        if first is not None and steady.pre is not None and steady.post is not None:
            call.fingerprinter = self.fingerprinter
            call.pre = {i: first + slot for i, slot in steady.pre.items()}
            call.post = None if error else {i: first + slot for i, slot in steady.post.items()}
            call.storages = tuple((graph_call + 1 << _STORAGE_BITS) + s for s in steady.storages)
            call.epochs, call.offsets = steady.epochs, steady.offsets
        about = self.graph_calls.get(graph_call)
        if about is not None:  # its execution began inside the recording
            call.step, call.phase = about.step, about.phase
            call.thread, call.stream, call.parent = about.thread, about.stream, about.parent
        return call

    @property
    def calls(self) -> list[KernelCall]:
        """Every launch, in order of execution."""
        calls = self.records_of_calls
        for position in range(len(self._views), self._spelled_out):
            self._views.append(view_of(self, calls[position]))
        return list(self._views)

    def select(
        self,
        *,
        kernel: str | Sequence[str] = "*",
        kind: str | Sequence[str] = (),
        graph: int | str | None = None,
        step: int | None = None,
        phase: str | None = None,
        first: int = 0,
        limit: int = 0,
    ) -> list[KernelCall]:
        """Calls by kernel name (globs), kind, graph (its id, AOT name or compile id), step and phase.

        At most `limit` of them, if given, from call `first` on.
        """
        globs, kinds = strings(kernel), strings(kind)
        found = [
            c
            for c in self.calls[first:]
            if any(fnmatchcase(c.kernel_name, glob) for glob in globs)
            and (not kinds or c.kind in kinds)
            and (graph is None or is_graph(c.graph, graph))
            and (step is None or c.step == step)
            and (phase is None or c.phase == phase)
        ]
        return found[:limit] if limit else found

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that ran, in order of first launch."""
        return list({c.site.kernel.id: c.site.kernel for c in self.records_of_calls}.values())

    @property
    def graphs(self) -> list[Graph]:
        """The compiled graphs that ran, in order of first execution."""
        return list({g.graph.id: g.graph for g in self.graph_calls.values()}.values())

    def graph_of(self, graph_call: int) -> Graph | None:
        found = self.graph_calls.get(graph_call)
        return found.graph if found else None

    @property
    def findings(self) -> list[Finding]:
        """What was noticed while recording, and what the hashes show; reading may wait for the device."""
        count, derived = self._derived
        calls = self.calls
        if count != len(calls):
            derived = list(findings_in(calls))
            self._derived = (len(calls), derived)
        return [*self.noted, *derived]

    @property
    def stages(self) -> Stages:
        """What the compiler did, of a run with stages: every graph on its way down, fusion, origins."""
        from kernelscope.stages import Stages

        records = self.compiled
        if self._stages is None or len(records) != self._stages[0]:
            self._stages = len(records), Stages(records)
        return self._stages[1]

    def stages_of(self, graph: Graph | None) -> StagedGraph | None:
        """The stages of a graph that ran; None where they were not recorded."""
        return self.stages.of(graph) if graph is not None else None

    def settle(self) -> None:
        """The recording has closed: what a launch that is still under way adds later is no part of it."""
        self._end = min(len(self.entries), self._end)
        self.graph_calls, self.marks = dict(self.graph_calls), list(self.marks)
        self.noted, self.compiled = list(self.noted), list(self.compiled)

    def resume(self) -> None:
        """The recording opens, maybe once more."""
        del self.entries[self._end :]
        self._end = sys.maxsize

    def close(self) -> None:
        """Let go of what it holds open: of a run on disk its file, of one in memory nothing."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run to a new folder, which `kernelscope.load` reads; values are read from the device."""
        from kernelscope.store import folder, writer

        target = folder.create(folder.named(os.fspath(path)))
        calls = [replace(call, parent=self.place_of(call.parent)) for call in self.records_of_calls]
        writer.save(target, self.info, self, calls)
        return target

    def to_pandas(self) -> Any:
        """The calls as a pandas DataFrame, one row each; needs pandas."""
        from .tables import to_pandas

        return to_pandas(self)

    def to_arrow(self) -> Any:
        """The calls as an Arrow table, one row each; needs pyarrow."""
        from .tables import to_arrow

        return to_arrow(self)

    def __len__(self) -> int:
        return min(len(self.entries), self._end)

    def __iter__(self) -> Iterator[KernelCall]:
        return iter(self.calls)

    def __str__(self) -> str:
        return listing(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from .html import run_html

        return run_html(self)

    def __repr__(self) -> str:
        return f"<Run {len(self)} calls, {len(self.graphs)} graphs, {len(self.kernels)} kernels>"


def is_graph(graph: Graph | None, wanted: int | str) -> bool:
    return graph is not None and wanted in (graph.id, graph.name, graph.compile_id)
