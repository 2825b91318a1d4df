"""How run.db is opened for writing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from kernelscope.private_files import FILE
from kernelscope.store.file_systems import can_lock

_READERS = 60.0  # seconds that a reader may keep the writer waiting, where there is no log
# The writer brings the log to the file itself, when the program does not wait for a transaction.
_PRAGMAS = "synchronous=NORMAL", "journal_size_limit=16777216", "wal_autocheckpoint=0"


def connected(path: Path, log: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether it writes ahead.

    Without the log, the journal takes back a transaction that a crash has torn, and a reader that is in the
    middle of something is waited for.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE))  # what lies beside it gets its mode
    if log:
        db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        with suppress(sqlite3.OperationalError):  # no shared memory here
            if db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",):
                for pragma in _PRAGMAS:
                    db.execute(f"PRAGMA {pragma}")
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
                return db, True
        db.close()
        os.truncate(path, 0)  # its first page says that it has a log
    lock = "" if can_lock(path) else "?nolock=1"  # there is no other writer
    where = f"file:{quote(os.fsencode(path.absolute()))}{lock}"
    db = sqlite3.connect(where, uri=True, check_same_thread=False, isolation_level=None, timeout=_READERS)
    for pragma in ("journal_mode=TRUNCATE", "synchronous=FULL"):
        db.execute(f"PRAGMA {pragma}")
    return db, False
