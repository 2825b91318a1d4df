"""`Run` over a folder: what `kernelscope.load` and `record(path=…)` give."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope.config import strings
from kernelscope.errors import RunError
from kernelscope.events import Call, Finding, Graph, GraphCall, Kernel, Mark, RunInfo, Site
from kernelscope.model.audit import Audit
from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import CallFacts
from kernelscope.model.kinds import view_of
from kernelscope.model.run import Run, is_graph
from kernelscope.stages.records import Record
from kernelscope.store.flight.reader import FlightLog, read_flight
from kernelscope.store.flight.recovered_calls import open_run
from kernelscope.store.run_db.row_reader import DatabaseReader
from kernelscope.store.run_db.row_views import RunRows
from kernelscope.store.safety.regular_files import refuse_other_kinds
from kernelscope.text.amounts import counted

from . import folder
from .run_db import codec, stage_rows
from .save_run import save_run
from .saved_values import value_of
from .tensors import SavedTensor, is_tensor_file

if TYPE_CHECKING:
    from .writer_thread import Writer

_INFO_KEYS = frozenset(RunInfo.__dataclass_fields__)


def load(path: str | Path, *, part: str = "") -> StoredRun:
    """A recorded run from its folder. `part` names another rank or process of it: "rank-1".

    Example:
        run = kernelscope.load("kscope-runs/train-1.kscope")
        print(run.calls[17])
    """
    root = folder.resolve(path)
    if part:
        if not (root / part / folder.DATABASE).is_file():
            known = ", ".join(p.name for p in folder.parts(root) if p != root) or "no other parts"
            raise RunError(f"{root} has no part {part!r}; it has {known}")
        return StoredRun(root / part)
    found = folder.parts(root)
    if not found:
        refuse_other_kinds(root / folder.DATABASE)
        raise RunError(f"there is no run in {root}: no process in it recorded anything")
    return StoredRun(found[0])


class StoredRun(Run):
    """A run whose calls are on disk."""

    def __init__(self, path: Path, info: RunInfo | None = None, writer: Writer | None = None) -> None:
        self.path = path
        self._writer = writer
        self._flight: FlightLog | None = None
        self._opened: DatabaseReader | None = None
        if info is None:
            with self.database.understood():
                rows = self.database.table("info")
                info = codec.info_of(row for row in rows if row[0] in _INFO_KEYS)
        super().__init__(info)
        self.name = path.name
        self._forget()

    @property
    def database(self) -> DatabaseReader:
        if self._opened is None:
            is_own = self._writer is not None and self._writer.is_open
            self._opened = DatabaseReader(self.path / folder.DATABASE) if is_own else open_run(self.path)
            if is_own:
                self._opened.why_not_made_here = ""  # it is being made
        return self._opened

    def close(self) -> None:
        """Close the file; reading on opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
            self._forget()

    def _forget(self) -> None:
        self._rows = RunRows(lambda: self.database)
        self._events: list[Call] | None = None
        self._compiled: list[Record] | None = None
        self._views = []

    def sync(self) -> None:
        """While it is being recorded, what was launched until now is written before it is read."""
        if self._writer is not None:
            is_over = not self._writer.is_open
            self._writer.flush()
            self._forget()
            if is_over:
                self._writer = None

    def rows(self, sql: str, given: Sequence[Any] = ()) -> list[codec.Row]:
        """What run.db answers to a query of our own; `query` takes those of users."""
        self.sync()
        with self.database.understood():
            return self.database.rows(sql, given)

    def numbers(self, sql: str, given: Sequence[Any] = ()) -> list[codec.Row]:
        """The same of columns of numbers; SQLite keeps whatever was put into them."""
        found = self.rows(sql, given)
        if not all(isinstance(cell, int | float | None) for row in found for cell in row):
            raise RunError(f"{self.database.path} is damaged: a column of numbers holds something else")
        return found

    # -- what every run has ----------------------------------------------------------------------------

    @property
    def records_of_calls(self) -> list[Call]:
        self.sync()
        if self._events is None:
            self._events = self.read_calls()
        return self._events

    def __len__(self) -> int:
        [(count,)] = self.rows("SELECT count(*) FROM calls")
        return int(count)

    @property
    def kernels(self) -> list[Kernel]:
        order = self.rows("SELECT site, min(id) FROM calls GROUP BY site ORDER BY 2")
        found = [self.sites[site][0].kernel for site, _ in order if site in self.sites]
        return list({kernel.id: kernel for kernel in found}.values())

    @property
    def graphs(self) -> list[Graph]:
        self.sync()
        return list(self._rows.graphs.values())

    @property
    def marks(self) -> list[Mark]:
        self.sync()
        with self.database.understood():
            return [Mark(*row[1:]) for row in self.database.table("marks", "ORDER BY id")]

    @property
    def graph_calls(self) -> dict[int, GraphCall]:
        self.sync()
        return self._rows.all_graph_calls()

    @property
    def compiled(self) -> list[Record]:
        self.sync()
        if self._compiled is None:
            with self.database.understood():
                self._compiled = stage_rows.read(
                    self.database.table, is_foreign=bool(self.database.why_not_made_here)
                )
        return self._compiled

    @property
    def compiler_settings(self) -> dict[str, dict[str, Any]]:
        self.sync()
        found = self.metadata.get("compiler_settings", {})
        if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
            raise RunError(f"{self.path} is damaged: its compiler_settings cannot be read")
        return found

    def position_of(self, key: int) -> int:
        """On disk, the key of a call is its position."""
        return key

    def graph_of(self, graph_call: int) -> Graph | None:
        found = self._rows.graph_call(graph_call) if graph_call >= 0 else None
        return found.graph if found else None

    @property
    def findings(self) -> list[Finding]:
        return super().findings if self.has_hashes() else self.noted_findings()  # a long run takes long

    def noted_findings(self) -> list[Finding]:
        self.sync()
        with self.database.understood():
            return [Finding(*row[1:]) for row in self.database.table("findings", "ORDER BY id")]

    def save(self, path: str | os.PathLike[str]) -> Path:
        return save_run(self, path, signs=self._writer is not None or not self.why_not_made_here())

    def why_not_made_here(self) -> str:
        """Why this run is not known to be recorded by this user; "" where it is."""
        self.sync()
        with self.database.understood():
            return self.database.why_not_made_here

    def saved_value(self, call: CallFacts, name: str, moment: str = "") -> SavedTensor:
        return value_of(call, name, moment, self.path / folder.TENSORS, self.saved_tensors(call.index))

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
        """As `Run.select`; at most `limit` calls from call `first` on, without reading the others."""
        self.sync()
        where, given = ["calls.id >= ?"], [first]
        globs, kinds = strings(kernel), strings(kind)
        with self.database.understood():
            if globs != ("*",) or kinds:
                sites = [
                    id
                    for id, (site, _) in self.sites.items()
                    if any(fnmatchcase(site.kernel.name, glob) for glob in globs)
                    and (not kinds or site.kernel.kind in kinds)
                ]
                where.append(f"calls.site IN ({', '.join(str(int(id)) for id in sites)})")
            if graph is not None:
                graphs = [g.id for g in self._rows.graphs.values() if is_graph(g, graph)]
                where.append(f"g.graph IN ({', '.join(str(int(id)) for id in graphs)})")
            if step is not None:
                where.append("coalesce(calls.step, g.step, 0) = ?")
                given.append(step)
            if phase is not None:
                where.append("coalesce(calls.phase, g.phase, 'other') = ?")
                given.append(phase)  # type: ignore[arg-type]
            join = " LEFT JOIN graph_calls g ON g.id = calls.graph_call" if len(where) > 1 else ""
            rest = f"{join} WHERE {' AND '.join(where)} ORDER BY calls.id"
            rows = self.database.table("calls", rest + (f" LIMIT {int(limit)}" if limit else ""), given)
        return [view_of(self, call) for call in self._rows.calls(rows)]

    # -- what only a run on disk has -------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the recording finished; a crash leaves it open."""
        return "ended_ns" in self.metadata

    @property
    def audit(self) -> Audit | None:
        found = self.metadata.get("audit")
        try:
            return None if found is None else Audit.from_json(found)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise RunError(f"{self.path} is damaged: its audit cannot be read") from None

    @property
    def is_cut_off(self) -> bool:
        """Whether its end is missing: the recording neither finished nor goes on in this process."""
        return self._writer is None and not self.is_closed

    @property
    def exception(self) -> str:
        """Of the exception that ended the program or the recorded block, if one did: the first line."""
        return str(self.metadata.get("exception", "")).partition("\n")[0]

    @property
    def metadata(self) -> dict[str, Any]:
        """What was noted of the run as a whole, besides `info`."""
        with self.database.understood():
            rows = self.database.table("info")
            return {key: codec.from_json(value) for key, value in rows if key not in _INFO_KEYS}

    @property
    def flight(self) -> FlightLog:
        if self._flight is None:
            self._flight = read_flight(self.path / folder.FLIGHT)
        return self._flight

    @property
    def stopped(self) -> str:
        """Why the recording ended before the program did, such as a full disk; empty when it did not."""
        try:
            return self.flight.stopped
        except RunError:
            return ""

    def calls_in_flight_alone(self) -> int:
        """How many calls a crash has left in the flight recorder alone."""
        assert self.flight.cells is not None  # an unreadable one says so
        return len(self.database.unwritten)

    @property
    def sites(self) -> dict[int, tuple[Site, tuple[int, ...]]]:
        """Every site, with the arguments that its noted calls found uninitialised."""
        return self._rows.sites

    def query(self, sql: str) -> tuple[list[str], list[codec.Row]]:
        """The columns and rows of a SELECT over the run's tables."""
        names, rows = open_run(self.path).query(sql)
        return names, list(rows)

    def totals(self) -> tuple[int, int, int]:
        """How many calls, kernels and graphs, without reading the calls."""
        tables = ("calls", "kernels", "graphs")
        calls, kernels, graphs = (self.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables)
        return calls, kernels, graphs

    def times(self) -> list[tuple[Site, int, int, int | None]]:
        """Site, calls, nanoseconds, bytes of one call: of each site that was measured, longest first."""
        rows = self.rows(
            "SELECT c.site, count(*), sum(c.duration_ns), s.bytes FROM calls c "
            "JOIN sites s ON s.id = c.site "
            "WHERE c.duration_ns IS NOT NULL GROUP BY c.site ORDER BY 3 DESC"
        )
        with self.database.understood():
            return [(self.sites[site][0], calls, total, moved) for site, calls, total, moved in rows]

    def counts(self) -> list[tuple[Site, int]]:
        """Each site with the number of its calls, in order of first launch."""
        rows = self.rows("SELECT site, count(*) FROM calls GROUP BY site ORDER BY min(id)")
        with self.database.understood():
            return [(self.sites[site][0], count) for site, count in rows]

    def saved_tensors(self, call: int) -> dict[tuple[int, str], str]:
        """File of each saved tensor of a call, by argument and moment ("before", "after")."""
        rows = self.rows("SELECT position, moment, file FROM tensors WHERE call = ?", (call,))
        with self.database.understood():
            found = {(int(position), str(moment)): str(file) for position, moment, file in rows}
        for file in found.values():
            if not is_tensor_file(file):
                raise RunError(f"{self.path} is damaged: {file!r:.80} is not the name of a saved tensor")
        return found

    def has_tensors(self) -> bool:
        return bool(self.rows("SELECT 1 FROM tensors LIMIT 1"))

    def has_hashes(self) -> bool:
        return bool(self.rows("SELECT 1 FROM fingerprints LIMIT 1"))

    def read_calls(self, indices: Sequence[int] | None = None) -> list[Call]:
        """These calls, or all of them."""
        return self._rows.calls_at(indices)

    def __repr__(self) -> str:
        return f"<Run {self.name}: {counted(len(self), 'call')}, {counted(len(self.graphs), 'graph')}>"
