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
from kernelscope.model.call import KernelCall
from kernelscope.model.kinds import view_of
from kernelscope.model.run import Run, is_graph
from kernelscope.stages.records import Record
from kernelscope.store.flight.reader import FlightLog, read_flight

from . import codec, folder, stage_rows
from .reader import Database, StoredHashes, numbers

if TYPE_CHECKING:
    from .writer import Writer

_MANY = 500  # values in one IN (…)


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
        raise RunError(f"there is no run in {root}: no process in it recorded anything")
    return StoredRun(found[0])


class StoredRun(Run):
    """A run whose calls stand on disk."""

    def __init__(self, path: Path, info: RunInfo | None = None, writer: Writer | None = None) -> None:
        self.path = path
        self._writer = writer
        self._flight: FlightLog | None = None
        self._opened: Database | None = None
        if info is None:
            with self._database.understood():
                rows = self._database.table("info")
                info = codec.info_of(row for row in rows if row[0] in _INFO_KEYS)
        super().__init__(info)
        self._forget()

    @property
    def _database(self) -> Database:
        if self._opened is None:
            self._opened = Database(self.path / folder.DATABASE)
        return self._opened

    def close(self) -> None:
        """Let go of the file; reading on opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
            self._forget()

    def _forget(self) -> None:
        self._hashes = StoredHashes(lambda: self._database)
        self._sites: dict[int, tuple[Site, tuple[int, ...]]] | None = None
        self._executions: dict[int, GraphCall] = {}
        self._graphs: dict[int, Graph] | None = None
        self._all: list[Call] | None = None
        self._shown: list[KernelCall] | None = None
        self._found: list[Finding] | None = None
        self._compiled: list[Record] | None = None

    def _sync(self) -> None:
        """While it is being recorded, what was launched until now is written before it is read."""
        if self._writer is not None:
            is_over = not self._writer.is_open
            self._writer.flush()
            self._forget()
            if is_over:
                self._writer = None

    # -- what a Run has --------------------------------------------------------------------------------

    @property
    def records_of_calls(self) -> list[Call]:
        self._sync()
        if self._all is None:
            self._all = self.read_calls()
        return self._all

    @property
    def calls(self) -> list[KernelCall]:
        calls = self.records_of_calls
        if self._shown is None:
            self._shown = [view_of(self, call) for call in calls]
        return list(self._shown)

    def __len__(self) -> int:
        self._sync()
        with self._database.understood():
            [(count,)] = self._database.rows("SELECT count(*) FROM calls")
            return int(count)

    @property
    def kernels(self) -> list[Kernel]:
        self._sync()
        with self._database.understood():
            order = self._database.rows("SELECT site, min(id) FROM calls GROUP BY site ORDER BY 2")
            sites = self.sites
            found = [sites[site][0].kernel for site, _ in order if site in sites]
            return list({kernel.id: kernel for kernel in found}.values())

    @property
    def graphs(self) -> list[Graph]:
        self._sync()
        return list(self._read_graphs().values())

    @property
    def marks(self) -> list[Mark]:
        self._sync()
        with self._database.understood():
            return [Mark(*row[1:]) for row in self._database.table("marks", "ORDER BY id")]

    @marks.setter
    def marks(self, value: list[Mark]) -> None:
        assert not value, "a run on disk is read, not written to"

    @property
    def graph_calls(self) -> dict[int, GraphCall]:
        self._sync()
        with self._database.understood():
            return {row[0]: self._execution(row) for row in self._database.table("graph_calls")}

    @graph_calls.setter
    def graph_calls(self, value: dict[int, GraphCall]) -> None:
        assert not value, "a run on disk is read, not written to"

    @property
    def compiled(self) -> list[Record]:
        self._sync()
        if self._compiled is None:
            with self._database.understood():
                self._compiled = stage_rows.read(self._database.table)
        return self._compiled

    @compiled.setter
    def compiled(self, value: list[Record]) -> None:
        assert not value, "a run on disk is read, not written to"

    @property
    def compiler_settings(self) -> dict[str, dict[str, Any]]:
        self._sync()
        found = self.notes_of_run.get("compiler_settings", {})
        if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
            raise RunError(f"{self.path} is damaged: its compiler_settings are no settings")
        return found

    @compiler_settings.setter
    def compiler_settings(self, value: dict[str, dict[str, Any]]) -> None:
        assert not value, "a run on disk is read, not written to"

    def place_of(self, key: int) -> int:
        """On disk, a call has its place from the beginning."""
        return key

    def graph_of(self, graph_call: int) -> Graph | None:
        if graph_call < 0:
            return None
        found = self._executions.get(graph_call)
        if found is None:
            self._read_executions([graph_call])
            found = self._executions.get(graph_call)
        return found.graph if found else None

    @property
    def findings(self) -> list[Finding]:
        noted = self.noted_findings()
        return super().findings if self.has_hashes() else noted  # a long run takes long to walk

    def noted_findings(self) -> list[Finding]:
        """What was noticed while recording."""
        self._sync()
        with self._database.understood():
            self.noted = [Finding(*row[1:]) for row in self._database.table("findings", "ORDER BY id")]
        return list(self.noted)

    def has_hashes(self) -> bool:
        with self._database.understood():
            return bool(self._database.rows("SELECT 1 FROM fingerprints LIMIT 1"))

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
        self._sync()
        where, given = ["calls.id >= ?"], [first]
        globs, kinds = strings(kernel), strings(kind)
        with self._database.understood():
            if globs != ("*",) or kinds:
                sites = [
                    id
                    for id, (site, _) in self.sites.items()
                    if any(fnmatchcase(site.kernel.name, glob) for glob in globs)
                    and (not kinds or site.kernel.kind in kinds)
                ]
                where.append(f"calls.site IN ({', '.join(str(int(id)) for id in sites)})")
            if graph is not None:
                graphs = [g.id for g in self._read_graphs().values() if is_graph(g, graph)]
                where.append(f"g.graph IN ({', '.join(str(int(id)) for id in graphs)})")
            if step is not None:
                where.append("coalesce(calls.step, g.step, 0) = ?")
                given.append(step)
            if phase is not None:
                where.append("coalesce(calls.phase, g.phase, 'other') = ?")
                given.append(phase)  # type: ignore[arg-type]
            join = " LEFT JOIN graph_calls g ON g.id = calls.graph_call" if len(where) > 1 else ""
            rest = f"{join} WHERE {' AND '.join(where)} ORDER BY calls.id"
            rows = self._database.table("calls", rest + (f" LIMIT {int(limit)}" if limit else ""), given)
        return [view_of(self, call) for call in self._from_rows(rows)]

    # -- what only a run on disk has -------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the recording came to its end; a crash leaves it open."""
        return "ended_ns" in self.notes_of_run

    @property
    def notes_of_run(self) -> dict[str, Any]:
        with self._database.understood():
            rows = self._database.table("info")
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

    def save(self, path: str | os.PathLike[str]) -> Path:
        _ = self.findings  # reads what was noted
        return super().save(path)

    def unwritten(self) -> int:
        """How many calls a crash has left in the flight recorder alone."""
        with self._database.understood():
            [(newest,)] = self._database.rows("SELECT coalesce(max(id), -1) FROM calls")
        return sum(slot.index > newest for slot in self.flight.slots)

    @property
    def sites(self) -> dict[int, tuple[Site, tuple[int, ...]]]:
        """Every site, with the arguments that its noted calls found uninitialised."""
        if self._sites is None:
            with self._database.understood():
                self._sites = self._read_sites()
        return self._sites

    def query(self, sql: str) -> tuple[list[str], list[codec.Row]]:
        """The columns and rows of a SELECT over the run's tables."""
        names, rows = Database(self.path / folder.DATABASE).query(sql)
        return names, list(rows)

    def totals(self) -> tuple[int, int, int]:
        """How many calls, kernels and graphs, without reading the calls."""
        self._sync()
        with self._database.understood():
            [(calls,)] = self._database.rows("SELECT count(*) FROM calls")
            [(kernels,)] = self._database.rows("SELECT count(*) FROM kernels")
            [(graphs,)] = self._database.rows("SELECT count(*) FROM graphs")
        return calls, kernels, graphs

    def times(self) -> list[tuple[Site, int, int, int | None]]:
        """Site, calls, nanoseconds, bytes of one call: of each site that was measured, longest first."""
        self._sync()
        with self._database.understood():
            rows = self._database.rows(
                "SELECT c.site, count(*), sum(c.duration_ns), s.bytes FROM calls c "
                "JOIN sites s ON s.id = c.site "
                "WHERE c.duration_ns IS NOT NULL GROUP BY c.site ORDER BY 3 DESC"
            )
            return [(self.sites[site][0], calls, total, moved) for site, calls, total, moved in rows]

    def counts(self) -> list[tuple[Site, int]]:
        """Each site with the number of its calls, in order of first launch."""
        self._sync()
        with self._database.understood():
            rows = self._database.rows("SELECT site, count(*) FROM calls GROUP BY site ORDER BY min(id)")
            return [(self.sites[site][0], count) for site, count in rows]

    def saved_tensors(self, call: int) -> dict[tuple[int, str], str]:
        """File of each saved tensor of a call, by argument and moment ("before", "after")."""
        with self._database.understood():
            rows = self._database.rows("SELECT position, moment, file FROM tensors WHERE call = ?", (call,))
            return {(int(position), str(moment)): str(file) for position, moment, file in rows}

    def has_tensors(self) -> bool:
        with self._database.understood():
            return bool(self._database.rows("SELECT 1 FROM tensors LIMIT 1"))

    def read_calls(self, indices: Sequence[int] | None = None) -> list[Call]:
        """These calls, or all of them."""
        with self._database.understood():
            if indices is None:
                return self._from_rows(self._database.table("calls", "ORDER BY id"))
            return self._from_rows(self._spread("calls", "id", list(indices)))

    # -- reading ---------------------------------------------------------------------------------------

    def _from_rows(self, rows: list[codec.Row]) -> list[Call]:
        with self._database.understood():
            self._read_executions([row[2] for row in rows if row[2] >= 0])
            sites, executions = self.sites, self._executions
            calls = [
                codec.call_of(row, sites[row[1]][0], executions.get(row[2]), sites[row[1]][1]) for row in rows
            ]
            self._add_details({call.index: call for call in calls})
            return calls

    def _add_details(self, calls: dict[int, Call]) -> None:
        for row in self._spread("details", "call", list(calls)):
            if row[0] in calls:
                codec.add_details(calls[row[0]], row, self._hashes)
        for index, message in self._spread("errors", "call", list(calls)):
            if index in calls:
                calls[index].error = message

    def _read_executions(self, wanted: list[int]) -> None:
        missing = list({id for id in wanted if id not in self._executions})
        with self._database.understood():
            for row in self._spread("graph_calls", "id", missing):
                self._executions[row[0]] = self._execution(row)

    def _execution(self, row: codec.Row) -> GraphCall:
        id, graph, thread, stream, phase, step, *newer = row
        parent = -1 if not newer or newer[0] is None else newer[0]
        return GraphCall(id, self._read_graphs()[graph], thread, stream, phase, step, parent)

    def _read_graphs(self) -> dict[int, Graph]:
        if self._graphs is None:
            with self._database.understood():
                rows = self._database.table("graphs", "ORDER BY id")
                self._graphs = {row[0]: codec.graph_of(row) for row in rows}
        return self._graphs

    def _read_sites(self) -> dict[int, tuple[Site, tuple[int, ...]]]:
        table = self._database.table
        kernels = {row[0]: codec.kernel_of(row) for row in table("kernels")}
        args: dict[int, list[Any]] = {}
        for row in table("arguments", "ORDER BY site, position"):
            args.setdefault(row[0], []).append(codec.arg_of(row[2:]))
        return {
            row[0]: (codec.site_of(row, kernels[row[1]], args.get(row[0], [])), numbers(row[9]))
            for row in table("sites")
        }

    def _spread(self, table: str, column: str, wanted: list[int]) -> list[codec.Row]:
        """Rows for these keys: by key when they are few, in one sweep when they are many."""
        if not wanted:
            return []
        if len(wanted) > 20 * _MANY:
            ends = (min(wanted), max(wanted))
            return self._database.table(table, f"WHERE {column} BETWEEN ? AND ?", ends)
        pieces = [wanted[i : i + _MANY] for i in range(0, len(wanted), _MANY)]
        return [row for keys in pieces for row in self._among(table, column, keys)]

    def _among(self, table: str, column: str, keys: Sequence[int]) -> list[codec.Row]:
        return self._database.table(table, f"WHERE {column} IN ({', '.join('?' * len(keys))})", keys)

    def __repr__(self) -> str:
        return f"<Run {self.path.name}: {len(self)} calls, {len(self.graphs)} graphs>"


_INFO_KEYS = frozenset(RunInfo.__dataclass_fields__)
