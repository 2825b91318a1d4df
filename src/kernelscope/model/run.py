"""One recorded execution: what every run can, in memory or on disk."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kernelscope.config import strings
from kernelscope.errors import RunError
from kernelscope.events import Call, Finding, Graph, GraphCall, Kernel, Mark, RunInfo
from kernelscope.stages import StagedGraph, Stages
from kernelscope.stages.records import Record
from kernelscope.text.amounts import counted
from kernelscope.text.visible import visible

from . import listing, tables
from .audit import Audit
from .call import KernelCall
from .call_facts import CallFacts
from .collectives import Collective, collectives_in, groups_in
from .debug_notes import CallNotes
from .derived_findings import findings_in
from .html import run_html
from .kinds import view_of


class Run(ABC):
    """Everything that one recording saw: `calls`, `kernels`, `graphs`, `findings`.

    Example:
        with kernelscope.record(values="hash") as run:
            compiled(x)
        print(run)
        run.select(kind="cpp", kernel="*layer_norm*")
    """

    name = "Run"  # of a run on disk, that of its folder
    debug_notes: Mapping[int, CallNotes] = MappingProxyType({})  # by key of the call, of a DebugMode

    if TYPE_CHECKING:  # attributes of a run in memory, read on demand by one on disk

        @property
        def graph_calls(self) -> dict[int, GraphCall]: ...
        @property
        def marks(self) -> list[Mark]: ...
        @property
        def compiled(self) -> list[Record]:
            """What the compiler did, with stages=True."""

        @property
        def audit(self) -> Audit | None:
            """With audit=True, what of all that ran is inside these calls; known when it has closed."""

        @property
        def compiler_settings(self) -> dict[str, dict[str, Any]]:
            """Settings of torch that are not its defaults: by module, and "environment"."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self._views: list[KernelCall] = []
        self._derived: tuple[int, list[Finding]] = (0, [])
        self._stages: tuple[int, Stages] | None = None  # of so many records
        self._collectives: tuple[int, dict[int, Collective]] = (0, {})  # of so many calls

    @property
    @abstractmethod
    def records_of_calls(self) -> list[Call]:
        """Every call in full."""

    @abstractmethod
    def noted_findings(self) -> list[Finding]:
        """What was noticed while recording."""

    @abstractmethod
    def position_of(self, key: int) -> int:
        """Position of the call that had this key while it was recorded, or -1."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run to a new folder, which `kernelscope.load` reads; values are read from the device."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def calls(self) -> list[KernelCall]:
        """Every launch, in order of execution."""
        views, events = self._views, self.records_of_calls
        if len(views) < len(events):  # a new list: another thread may be at it, too
            self._views = views = [*views, *(view_of(self, event) for event in events[len(views) :])]
        return list(views)

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
    def collectives(self) -> dict[int, Collective]:
        """By index of the call: the collectives, messages between two ranks, and waits for them."""
        if self._collectives[0] != len(self):
            groups = groups_in(self.marks)
            self._collectives = len(self), collectives_in(self.calls, groups, self.info.rank)
        return self._collectives[1]

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

    def totals(self) -> tuple[int, int, int]:
        """How many calls, kernels and graphs."""
        return len(self), len(self.kernels), len(self.graphs)

    @property
    def findings(self) -> list[Finding]:
        """What was noticed while recording, and what the hashes show; reading may wait for the device."""
        count, derived = self._derived
        calls = self.calls
        if count != len(calls):
            derived = list(findings_in(calls))
            self._derived = (len(calls), derived)
        return [*self.noted_findings(), *derived]

    @property
    def stages(self) -> Stages:
        """What the compiler did, of a run with stages: every graph on its way down, fusion, origins."""
        records = self.compiled
        if self._stages is None or len(records) != self._stages[0]:
            self._stages = len(records), Stages(records)
        return self._stages[1]

    def stages_of(self, graph: Graph | None) -> StagedGraph | None:
        """The stages of a graph that ran; None where they were not recorded."""
        return self.stages.of(graph) if graph is not None else None

    def saved_value(self, call: CallFacts, name: str, moment: str = "") -> Any:
        """A tensor that was saved of a call."""
        raise RunError(
            "tensors are saved in runs on disk only: use record(values='save', path=…) or "
            "kernelscope run --values save"
        )

    def close(self) -> None:  # noqa: B027
        """Close the files that it has opened: the file of a run on disk; a run in memory has none."""

    def to_pandas(self) -> Any:
        """The calls as a pandas DataFrame, one row each; needs pandas."""
        return tables.to_pandas(self.calls)

    def to_arrow(self) -> Any:
        """The calls as an Arrow table, one row each; needs pyarrow."""
        return tables.to_arrow(self.calls)

    def heading(self) -> str:
        """How much it holds and how it was recorded, in one line."""
        return listing.heading(self.info, *self.totals())

    def __iter__(self) -> Iterator[KernelCall]:
        return iter(self.calls)

    def __str__(self) -> str:
        return visible("\n".join([self.heading(), *listing.lines(self.calls, self.findings)]))

    def _repr_html_(self) -> str:
        """For notebooks."""
        return run_html(self.name, self.heading(), len(self), self.select, self.noted_findings())

    def __repr__(self) -> str:
        calls, graphs, kernels = len(self), len(self.graphs), len(self.kernels)
        return f"<Run {counted(calls, 'call')}, {counted(graphs, 'graph')}, {counted(kernels, 'kernel')}>"


def is_graph(graph: Graph | None, wanted: int | str) -> bool:
    return graph is not None and wanted in (graph.id, graph.name, graph.compile_id)
