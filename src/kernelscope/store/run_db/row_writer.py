"""run.db as it is written: one connection, one transaction at a time."""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from kernelscope.events import (
    Call,
    CapturedGraph,
    Finding,
    GraphCall,
    Mark,
    Replay,
    RunInfo,
    Site,
    SteadySite,
)
from kernelscope.stages.records import Record
from kernelscope.store.run_db.schema import APPLICATION_ID, OBJECTS, SCHEMA_VERSION
from kernelscope.store.safety.origin import ORIGIN, SIGNED, SIGNED_INFO, begin_signature
from kernelscope.text.secrets import Secrets

from . import codec, number_rows, stage_rows
from .connection import connected
from .stat_texts import joined_texts, stat_texts

# Rows in one statement. SQLite lets go of Python's lock at each: with one row in each, the recorded program
# and the writer would hand that lock to and fro all the time.
_AT_ONCE = 500
_MESSAGES = frozenset(("errors", "findings", "marks"))  # which may hold secrets
_CODE = frozenset(("incidents", "stages"))  # lines of the program, too
NUMBERS_OF_NOTED = 6
LOG_SHIFT = 40  # of a fingerprint slot: its log; log 0 is the host's
_SLOTS_AT_ONCE = 8192
_ROWS_IN_LOG = 50_000
_IN_USE = 4096  # slots before the oldest one that is needed: a call that is not written yet may be theirs

# Replays are a row each; SQLite makes the rows of their calls, and Python's lock is free meanwhile.
_FOR_REPLAYS = (
    "PRAGMA temp_store=MEMORY",
    "CREATE TEMP TABLE captured (capture INTEGER, position INTEGER, site INTEGER, phase TEXT, "
    "layout INTEGER, PRIMARY KEY (capture, position)) WITHOUT ROWID",
    "CREATE TEMP TABLE replayed (call INTEGER PRIMARY KEY, capture INTEGER, graph_call INTEGER, "
    "start_ns INTEGER, step INTEGER, thread INTEGER, stream INTEGER, replay INTEGER)",
)
_CALLS_OF_REPLAYS = """INSERT OR REPLACE INTO calls
SELECT r.call + c.position, c.site, r.graph_call, r.start_ns, NULL, r.step, c.phase, r.thread, r.stream,
  r.replay, NULL, c.layout
FROM temp.replayed r CROSS JOIN temp.captured c ON c.capture = r.capture"""


class Database:
    """Writes the rows of one run. Used by one thread at a time."""

    def __init__(self, path: Path, info: RunInfo, *, log: bool = True, signs: bool = True) -> None:
        """`log`: write ahead, where SQLite can; readers are then never in the way of a transaction.

        `signs`: say that it was made here.
        """
        self.path = path
        self.db, self.has_log = connected(path, log)
        self._in_file = 0  # rows that had been written at the last checkpoint
        self._sites: dict[int, Site] = {}
        self._kernels: set[int] = set()
        self._graphs: set[int] = set()
        self._fingerprints: dict[int, int] = {}  # by log: the first slot that is not written yet
        self._captured: dict[CapturedGraph, int] = {}  # their numbers in `captured`
        self._signature, self._origin = begin_signature(info.uuid, signs=signs)
        self._secrets = Secrets()
        self._hidden_message = lru_cache(maxsize=1024)(self._secrets.hidden_message)  # marks repeat
        try:
            for sql in (*_FOR_REPLAYS, *number_rows.PLACES):
                self.db.execute(sql)
            self.db.execute("BEGIN")
            for sql in OBJECTS[SCHEMA_VERSION].values():
                self.db.execute(sql)
            self.db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self.db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            self.db.executemany("INSERT INTO info VALUES (?, ?)", codec.info_rows(info))
            self.db.execute("COMMIT")
        except BaseException:
            self.db.close()
            raise

    def __enter__(self) -> Database:
        self.db.execute("BEGIN")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            if self._signature.has_changed:
                self._signature.has_changed = False
                self._put(ORIGIN, codec.to_json(self._origin | {"signature": self._signature.text()}))
            self.db.execute("COMMIT")
        else:
            with suppress(sqlite3.Error):  # a full disk has rolled back already
                self.db.execute("ROLLBACK")

    def note(self, key: str, value: Any) -> None:
        text = codec.to_json(self._secrets.hidden_form(value))
        self._put(key, text)
        if key == SIGNED_INFO:
            self._signature.add("info", [(key, text)])

    def _put(self, key: str, text: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO info VALUES (?, ?)", (key, text))

    def sites(self, sites: Iterable[tuple[Site, Sequence[int] | None]]) -> None:
        """With what their noted calls find uninitialised, where they have been noted."""
        kernels: list[codec.Row] = []
        rows: list[codec.Row] = []
        arguments: list[codec.Row] = []
        for site, uninitialised in sites:
            if (is_known := self._sites.get(site.id) is site) and uninitialised is None:
                continue
            if site.kernel.id not in self._kernels:
                kernels.append(codec.row_of(site.kernel))
                self._kernels.add(site.kernel.id)
            rows.append(codec.site_row(site, uninitialised or ()))
            arguments += () if is_known else codec.argument_rows(site)
            self._sites[site.id] = site
        # Together: between two statements the program's thread has Python's lock for as long as it likes.
        self._insert("kernels", kernels)
        self._insert("sites", rows)
        self._insert("arguments", arguments)

    def graph_calls(self, graph_calls: Sequence[GraphCall]) -> None:
        new = {call.graph.id: call.graph for call in graph_calls if call.graph.id not in self._graphs}
        self._insert("graphs", [codec.row_of(graph) for graph in new.values()])
        self._graphs.update(new)
        self._insert("graph_calls", [codec.graph_call_row(g) for g in graph_calls])

    @property
    def graph_count(self) -> int:
        return len(self._graphs)

    def noted_calls(self, numbers: bytes) -> None:
        """Straight from the ring, six for a call: index, site, graph call, start ns, duration ns, layout.

        The last two are 0 where there is none. What a noted call does not say, its graph call and layout do.
        """
        into, width = "calls (id, site, graph_call, start_ns, duration_ns, layout)", NUMBERS_OF_NOTED
        values = [number_rows.number(column, width) for column in range(width)]
        values[4:] = [f"nullif({value}, 0)" for value in values[4:]]
        if not number_rows.insert(self.db, into, values, numbers, width):
            marks = "(?, ?, ?, ?, nullif(?, 0), nullif(?, 0))"
            self._insert_flat(into, marks, width, array("q", numbers).tolist())

    def layouts(self, layouts: Iterable[tuple[int, SteadySite]]) -> None:
        self._insert("layouts", [codec.layout_row(id, steady) for id, steady in layouts])

    def first_slots(self, rows: Sequence[tuple[int, int]]) -> None:
        """(graph call, first slot), where its fingerprints were planned."""
        self._insert("first_slots", rows)

    def calls(self, calls: Sequence[Call]) -> None:
        self.sites((call.site, None) for call in calls)
        self._insert("calls", [codec.call_row(call) for call in calls])
        self._insert("details", [row for call in calls if (row := codec.detail_row(call)) is not None])
        self._insert("errors", [(call.index, call.error) for call in calls if call.error])

    def replays(self, replays: Sequence[tuple[int, Replay]]) -> None:
        """The calls of these replays, each given with its first one."""
        if not replays:
            return
        for _, replay in replays:
            if replay.graph not in self._captured:
                self._add_captured(replay.graph)
        rows = [
            (first, self._captured[r.graph], r.graph_call, r.start_ns, r.step, r.thread, r.stream, r.number)
            for first, r in replays
        ]
        self._insert("temp.replayed", rows)
        self.db.execute(_CALLS_OF_REPLAYS)
        self.db.execute("DELETE FROM temp.replayed")
        self._insert("replays", [(first, r.first if r.first >= 0 else None) for first, r in replays])

    def _add_captured(self, graph: CapturedGraph) -> None:
        number = self._captured[graph] = len(self._captured)
        launches = zip(graph.launches, graph.numbers, strict=True)
        rows = [
            (number, position, steady.site.id, steady.phase, codec.layout_id(steady, steady_number))
            for position, (steady, steady_number) in enumerate(launches)
        ]
        self._insert("temp.captured", rows)

    def error(self, call: int, message: str) -> None:
        self._insert("errors", [(call, message)])

    def durations(self, rows: Iterable[tuple[int, int]]) -> None:
        """(nanoseconds, call), measured after the call was written."""
        self.db.executemany("UPDATE calls SET duration_ns = ? WHERE id = ?", rows)

    def fingerprints(self, fingerprinter: Any, log: int, slots: range) -> None:
        """The values of these slots of one log, as far as they are not written yet."""
        start = max(self._fingerprints.get(log, slots.start), slots.start)
        read_many = getattr(fingerprinter, "read_many", lambda start, stop: None)
        stats = fingerprinter.stats if getattr(fingerprinter, "has_stats", False) else lambda slot: None
        while start < slots.stop:
            stop = min(start + _SLOTS_AT_ONCE, slots.stop)
            several = read_many(start, stop)
            if several is None:
                one_by_one = range(start, stop)
                rows = [codec.fingerprint_row(s, fingerprinter.read(s), stats(s)) for s in one_by_one]
                self._insert("fingerprints", rows)
            else:
                self._several_fingerprints(start, *several)
            self._fingerprints[log] = start = stop

    def _several_fingerprints(self, first: int, bits: Sequence[int], stats: Any) -> None:
        """Of slots from `first` on; there are statistics of all of them, or of none."""
        slots, texts = range(first, first + len(bits)), joined_texts(stats) if stats else None
        if texts is not None:
            numbers, text = number_rows.columns(bits, texts.starts, texts.lengths), texts.text
            values = [number_rows.FIRST, number_rows.number(0, 3), number_rows.text_of(1, 2, 3)]
            into = "fingerprints (slot, bits, stats)"
            if number_rows.insert(self.db, into, values, numbers, 3, first, text):
                self._insert(into, [(first + i, bits[i], other) for i, other in texts.others])
                return
        elif not stats:
            values, into = [number_rows.FIRST, number_rows.number(0, 1)], "fingerprints (slot, bits)"
            if number_rows.insert(self.db, into, values, array("q", bits), 1, first):
                return
        told = stat_texts(stats) if stats else [None] * len(bits)
        self._insert("fingerprints (slot, bits, stats)", list(zip(slots, bits, told, strict=True)))

    def fingerprints_until(self, log: int) -> int:
        """Slots of this log before this one are written, or not needed."""
        return self._fingerprints.get(log, log << LOG_SHIFT)

    def tensors(self, rows: Sequence[codec.Row]) -> None:
        self._insert("tensors", rows)

    def marks(self, marks: Sequence[Mark]) -> None:
        self._insert("marks (call, kind, text)", [codec.row_of(mark) for mark in marks])

    def findings(self, findings: Sequence[Finding]) -> None:
        rows = [codec.row_of(finding) for finding in findings]
        self._insert("findings (kind, message, call, kernel, arg)", rows)

    def compiled(self, records: Sequence[Record]) -> None:
        for table, columns, rows in stage_rows.rows_of(records):
            self._insert(f"{table} ({columns})", rows)

    def drop_before(self, call: int) -> None:
        """Forget all calls before this one, and what only they refer to; the space is used again."""
        for table, column in (("calls", "id"), ("details", "call"), ("errors", "call"), ("tensors", "call")):
            self.db.execute(f"DELETE FROM {table} WHERE {column} < ?", (call,))
        oldest = "(SELECT min(graph_call) FROM calls WHERE graph_call >= 0)"
        self.db.execute(f"DELETE FROM graph_calls WHERE id < {oldest}")
        self.db.execute(f"DELETE FROM first_slots WHERE graph_call < {oldest}")
        kept = "(SELECT max(call) FROM replays WHERE call <= ?)"
        self.db.execute(f"DELETE FROM replays WHERE call < {kept}", (call,))
        self.db.execute("DELETE FROM marks WHERE call < ?", (call,))
        self._drop_fingerprints()
        self.note("dropped_before", call)

    def _drop_fingerprints(self) -> None:
        """Slots are handed out in order, so what is older than all that the calls refer to is of no use."""
        needed = self.db.execute(
            f"SELECT value >> {LOG_SHIFT}, min(value) "
            "FROM (SELECT value FROM (SELECT pre AS slots FROM details UNION ALL SELECT post FROM details), "
            "json_each(slots) UNION ALL SELECT slot FROM first_slots "
            "UNION ALL SELECT slot FROM replays WHERE slot IS NOT NULL) GROUP BY 1"
        ).fetchall()
        for log, oldest in needed:
            start, end = log << LOG_SHIFT, oldest - _IN_USE
            if end > start:
                self.db.execute("DELETE FROM fingerprints WHERE slot >= ? AND slot < ?", (start, end))
                self._fingerprints[log] = max(self._fingerprints.get(log, start), end)

    def _insert(self, table: str, rows: Sequence[codec.Row]) -> None:
        name = table.partition(" ")[0]
        if rows and name in _MESSAGES | _CODE:
            hidden = self._hidden_message if name in _MESSAGES else self._secrets.hidden
            rows = [tuple([hidden(v) if isinstance(v, str) else v for v in row]) for row in rows]
        if name in SIGNED:
            self._signature.add(name, rows)
        if rows:
            marks = f"({', '.join('?' * len(rows[0]))})"
            self._insert_flat(table, marks, len(rows[0]), list(chain.from_iterable(rows)))

    def _insert_flat(self, into: str, marks: str, width: int, values: list[Any]) -> None:
        at = 0
        while at < len(values):
            count = min(_AT_ONCE, (len(values) - at) // width)
            sql = f"INSERT OR REPLACE INTO {into} VALUES {', '.join([marks] * count)}"
            given = values[at : at + count * width]
            try:
                self.db.execute(sql, given)
            except UnicodeEncodeError:  # a lone surrogate, as in the name of a file that is not UTF-8
                self.db.execute(sql, [codec.storable(v) if isinstance(v, str) else v for v in given])
            at += count * width

    def checkpoint(self) -> None:
        """Now and then, bring the write-ahead log to the file: the disk may take its time for that."""
        if self.has_log and self.db.total_changes - self._in_file > _ROWS_IN_LOG:
            self._in_file = self.db.total_changes
            with suppress(sqlite3.Error):  # a reader is busy, or the disk is full: another time
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @property
    def size(self) -> int:
        """Bytes on disk, with what is still in the write-ahead log."""
        total = 0
        for name in (self.path.name, f"{self.path.name}-wal"):
            with suppress(OSError):
                total += self.path.with_name(name).stat().st_size
        return total

    def close(self) -> None:
        """Leave one file that can be read where nothing can be written."""
        try:
            with self:
                self.note("ended_ns", time.time_ns())
            with suppress(sqlite3.OperationalError):  # a reader is busy: the log stays beside it
                self.db.execute("PRAGMA journal_mode=DELETE")
        finally:
            self.db.close()

    def abandon(self) -> None:
        with suppress(sqlite3.Error):
            self.db.close()
