"""A run from disk: the same `Run`, read lazily from run.db. Trusts nothing that it reads."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from kernelscope.errors import RunError
from kernelscope.events import Site
from kernelscope.fingerprint.stats import Stats
from kernelscope.private_files import open_private
from kernelscope.store.file_systems import can_share
from kernelscope.store.run_db.schema import APPLICATION_ID, COLUMNS, LINES, OBJECTS, SCHEMA_VERSION
from kernelscope.store.safety.origin import why_not_made_here
from kernelscope.store.safety.regular_files import open_regular, refuse_other_kinds, refuse_without_space
from kernelscope.text.visible import unbroken

from . import codec

_SIGNED_SINCE = 5  # schema
_SMALLEST = 512  # bytes of a page
_AT_ONCE = 64  # fingerprints that are read together
_KEPT = 200_000  # fingerprints that are remembered: whoever walks a long run reads each once
SECONDS_FOR_A_LOCK = 10.0  # seconds that a writer may keep us waiting, where there is no log
_BESIDE = ("-journal", "-wal", "-shm")  # files that SQLite opens beside it
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # begins a journal, and ends one that has a super-journal
_MOST_IN_A_CELL = 1 << 28  # bytes
_PATIENCE = 60.0  # seconds for one question: a damaged file must not hang us

# What may go wrong while rows that we did not write are turned into records.
DAMAGES = (
    sqlite3.Error, sqlite3.Warning, ValueError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, RecursionError, MemoryError,
)  # fmt: skip


class DatabaseReader:
    """run.db, opened for reading only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.version = 0
        self.unwritten: set[int] = set()  # calls that are not in the file
        self.unwritten_sites = 0
        with self.understood():
            self._db = self._open()
        self._deadline = float("inf")
        self._db.set_progress_handler(self._is_too_late, 100_000)
        with self.understood():
            self._check()

    def _open(self) -> sqlite3.Connection:
        size = self._size()
        if not size:
            raise RunError(f"{self.path} is empty: the process ended before it had recorded anything")
        foreign = f"{self.path} is not a run of kernelscope: it is not an SQLite database"
        if size < _SMALLEST:  # for SQLite these are empty
            raise RunError(foreign)
        try:
            return self._connect(self.path)
        except sqlite3.OperationalError as error:
            if _is_busy(error) and can_share(self.path.with_name("flight")):
                raise  # the copy could be torn
            return self._connect(self._copied(), mode="rw")
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                raise RunError(foreign) from None
            raise

    def _size(self) -> int:
        """Without opening it: closing it would give up the locks that a writer in this process has on it."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            raise RunError(f"there is no run in {self.path.parent}: it has no {self.path.name}") from None
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {error.strerror}") from None
        for name in ("", *_BESIDE):
            refuse_other_kinds(self.path.with_name(self.path.name + name))
        if not os.access(self.path, os.R_OK):
            raise RunError(f"{self.path} cannot be read: {os.strerror(errno.EACCES)}")
        return found.st_size

    def _connect(self, path: Path, mode: str = "ro") -> sqlite3.Connection:
        where = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
        db = sqlite3.connect(
            where, uri=True, isolation_level=None, check_same_thread=False, timeout=SECONDS_FOR_A_LOCK
        )
        try:
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_IN_A_CELL)
            db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            if sys.version_info >= (3, 12):
                db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
                db.execute(f"PRAGMA {pragma}")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            db.close()
            raise
        return db

    def _copied(self) -> Path:
        """A log or journal that was left by a crash can only be read where SQLite may write beside it.

        Nor can a file be read in place where SQLite cannot lock it.
        """
        self._copy = tempfile.TemporaryDirectory(prefix="kernelscope-")
        target = Path(self._copy.name)
        for end in ("", "-journal", "-wal"):
            source = self.path.with_name(self.path.name + end)
            with suppress(FileNotFoundError), open_regular(source) as file:
                if end == "-journal":
                    _refuse_super_journal(source, file)
                refuse_without_space(target, os.fstat(file.fileno()).st_size, f"a copy of {source}")
                with open_private(target / source.name, "xb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
        return target / self.path.name

    def _check(self) -> None:
        [(application,)] = self.rows("PRAGMA application_id")
        [(self.version,)] = self.rows("PRAGMA user_version")
        [(objects,)] = self.rows("SELECT count(*) FROM sqlite_master")
        if not objects and not application:
            raise RunError(f"{self.path} is empty: the process ended before it had recorded anything")
        if application != APPLICATION_ID:
            raise RunError(f"{self.path} is not a run of kernelscope: it is another program's database")
        if self.version > SCHEMA_VERSION:
            raise RunError(
                f"{self.path} has schema {self.version}, and this kernelscope reads up to {SCHEMA_VERSION}: "
                "it was written by a newer kernelscope; upgrade to read it"
            )
        found: dict[str, str] = dict(self.rows("SELECT name, sql FROM sqlite_master WHERE sql <> ''"))
        # Compared word by word: a foreign schema could make a plain SELECT run anything SQLite has.
        if found != OBJECTS.get(self.version):
            raise RunError(f"{self.path} is damaged: its tables are not those of schema {self.version}")
        self.rows("PRAGMA trusted_schema=ON")  # our views use JSON functions, and these are our views

    def add_unwritten(
        self, calls: Sequence[codec.Row], kernels: Sequence[codec.Row], sites: Sequence[Site]
    ) -> None:
        """Add calls that did not come to be written, as far as this reader goes: nothing changes on disk."""
        rows: dict[str, list[codec.Row]] = {
            "calls": list(calls),
            "kernels": list(kernels),
            "sites": [codec.site_row(site) for site in sites],
            "arguments": [row for site in sites for row in codec.argument_rows(site)],
        }
        for pragma in ("query_only=OFF", "temp_store=MEMORY"):
            self._db.execute(f"PRAGMA {pragma}")
        for table, added in rows.items():
            width = len(COLUMNS[self.version][table])
            columns = ", ".join(f"c{i}" for i in range(width))
            self._db.execute(f"CREATE TEMP TABLE unwritten_{table} ({columns})")
            self._db.executemany(
                f"INSERT INTO unwritten_{table} VALUES ({', '.join('?' * width)})",
                [row[:width] for row in added],
            )
            both = f"SELECT * FROM main.{table} UNION ALL SELECT * FROM temp.unwritten_{table}"
            self._db.execute(f"CREATE TEMP VIEW {table} AS {both}")  # comes before the table of this name
        for view in ("call", "hash"):
            sql = OBJECTS[self.version][view]
            self._db.execute(sql.replace("CREATE VIEW", "CREATE TEMP VIEW"))
        self._db.execute("PRAGMA query_only=ON")
        self.unwritten = {row[0] for row in calls}
        self.unwritten_sites = len(sites)

    @cached_property
    def why_not_made_here(self) -> str:
        """Why this run is not known to be recorded by this user; "" where it is."""
        if self.version < _SIGNED_SINCE:
            return "it was recorded by an older version, which did not sign runs"
        if self.unwritten_sites:
            return "its newest kernels are in the flight recorder only, which is not signed"
        self._db.execute("BEGIN")  # as it is at one moment, if it is being recorded
        try:
            return why_not_made_here(self.rows, dict(self.table("info")))
        finally:
            self._db.execute("ROLLBACK")

    def _is_too_late(self) -> int:
        return int(time.monotonic() > self._deadline)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Whatever a damaged file makes us stumble over becomes one sentence."""
        try:
            yield
        except DAMAGES as error:
            if isinstance(error, sqlite3.OperationalError) and _is_busy(error):
                raise RunError(f"{self.path} is being written and stays locked; try again") from None
            what = str(error) or type(error).__name__
            raise RunError(f"{self.path} is damaged and cannot be read in full ({what})") from None
        except OSError as error:  # nothing but a copy is written here
            raise RunError(
                f"{self.path} cannot be read in place, and a copy cannot be made: {error.strerror}; "
                "set TMPDIR to a folder with room for it"
            ) from None

    def rows(self, sql: str, given: Sequence[Any] = ()) -> list[codec.Row]:
        self._deadline = time.monotonic() + _PATIENCE
        try:
            return self._db.execute(sql, given).fetchall()
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise RunError(
                    f"a query of {self.path} took longer than {_PATIENCE:.0f} s; the file may be damaged"
                ) from None
            raise

    def table(self, name: str, rest: str = "", given: Sequence[Any] = ()) -> list[codec.Row]:
        """Whole rows of a table, each column of the type that it must have."""
        if name not in OBJECTS[self.version]:
            return []  # this run is older than the table
        rows = self.rows(f"SELECT {name}.* FROM {name} {rest}", given)
        columns, has_breaks = COLUMNS[self.version][name], False
        for row in rows:
            for value, types in zip(row, columns, strict=True):
                if type(value) not in types:
                    raise ValueError(f"a row of {name} holds {value!r:.40}, which has the wrong type")
                has_breaks |= type(value) is str and ("\n" in value or "\r" in value)
        return [_unbroken(row, LINES[name]) for row in rows] if has_breaks else rows

    def query(self, sql: str) -> tuple[list[str], Iterator[codec.Row]]:
        """A SELECT of the user's: column names, and rows as they come."""
        self._deadline = float("inf")
        self._db.set_authorizer(_only_reading)
        try:
            cursor = self._db.execute(sql)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise RunError(f"SQLite rejected the query: {error}{self._advice(str(error))}") from None
        if cursor.description is None:
            raise RunError("only queries that read are allowed: start with SELECT or WITH")
        return [name for name, *_ in cursor.description], self._each(cursor)

    def _advice(self, error: str) -> str:
        if error == "not authorized":
            return "; a run is only read: start with SELECT or WITH, and name its own tables"
        if re.match(r"no \w+ table", error):
            return f"; the tables are {', '.join(sorted(OBJECTS[self.version]))}"
        return ""

    def _each(self, cursor: sqlite3.Cursor) -> Iterator[codec.Row]:
        try:
            yield from cursor
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise RunError(f"SQLite stopped the query: {error}") from None

    def copy_to(self, path: Path) -> None:
        """Write it as one file, as it is at this moment, also while it is being recorded."""
        with self.understood(), closing(sqlite3.connect(path)) as target:
            [pages], [page] = self.rows("PRAGMA page_count"), self.rows("PRAGMA page_size")
            refuse_without_space(path.parent, pages[0] * page[0], f"a copy of {self.path}")
            self._db.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")

    def close(self) -> None:
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()


_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


# Functions: one loads code, though Python leaves it off; the other tells and sets addresses in this process.
_FORBIDDEN = ("load_extension", "fts3_tokenizer")


def _only_reading(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action in _READING and (second or "").lower() not in _FORBIDDEN:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


class StoredFingerprints:
    """Reads fingerprints where a live run's fingerprinter would."""

    def __init__(self, database: Callable[[], DatabaseReader]) -> None:
        self._database = database
        self._known: dict[int, tuple[Any, Stats | None]] = {}
        self.has_stats = True  # maybe: what was not taken is None

    def read(self, slot: int) -> Any:
        """The value in a slot; None where the process ended before it was written."""
        return self._row(slot)[0]

    def stats(self, slot: int) -> Stats | None:
        return self._row(slot)[1]

    def _row(self, slot: int) -> tuple[Any, Stats | None]:
        if slot not in self._known:
            if len(self._known) > _KEPT:
                self._known.clear()
            database = self._database()
            start = slot - slot % _AT_ONCE  # its neighbours are those of the same and the next calls
            with database.understood():
                rows = database.table(
                    "fingerprints", "WHERE slot BETWEEN ? AND ?", (start, start + _AT_ONCE - 1)
                )
                self._known |= {
                    at: (codec.fingerprint_value(bits, other), codec.stats_of(stats))
                    for at, bits, other, stats in rows
                }
            self._known.setdefault(slot, (None, None))
        return self._known[slot]


def _unbroken(row: codec.Row, lines: frozenset[int]) -> codec.Row:
    """A name with a line break would pass for several lines."""
    return tuple(unbroken(v) if at in lines and isinstance(v, str) else v for at, v in enumerate(row))


def _refuse_super_journal(path: Path, file: BinaryIO) -> None:
    """A journal may name a file that SQLite reads and deletes when it plays the journal back. Ours do not."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - len(_JOURNAL_MAGIC)))
    if size >= 2 * len(_JOURNAL_MAGIC) and file.read() == _JOURNAL_MAGIC:
        raise RunError(f"{path} is not a journal of kernelscope: it names another file; remove the journal")
    file.seek(0)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
