"""Runs on file systems without shared memory or locks: written, killed and read all the same."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.sample_runs import info, write_sample

import kernelscope
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.file_systems import can_lock, file_system_of, network_of
from kernelscope.store.flight import crash
from kernelscope.store.flight import reader as flight_reader
from kernelscope.store.flight.reader import is_recording
from kernelscope.store.flight.recorder import Flight
from kernelscope.store.run_db import connection, row_reader
from kernelscope.store.run_db.row_writer import Database

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
MOUNTS = r"""
/dev/vda1 / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
tmpfs /home/me/fast tmpfs rw 0 0
mds@tcp:/scratch /scratch lustre rw,flock 0 0
//nas/x /mnt/my\040disk cifs rw 0 0
tmpfs /data tmpfs rw 0 0
server:/data /data nfs rw 0 0
a
"""


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/home/me/runs", "nfs4"), ("/home", "nfs4"), ("/homes/me", ""), ("/home/me/fast/runs", ""),
        ("/scratch/x/y", "lustre"), ("/mnt/my disk/runs", "cifs"), ("/mnt/my", ""), ("/data/x", "nfs"),
        ("/var/tmp", ""),
    ],
)  # fmt: skip
def test_which_file_system_a_folder_is_on(path: str, network: str) -> None:
    assert network_of(Path(path), MOUNTS) == network


def test_the_mounts_of_this_machine() -> None:
    assert file_system_of(Path("/proc/self"), Path("/proc/self/mounts").read_text()) == "proc"
    assert network_of(Path("/proc/self")) == ""
    assert file_system_of(Path("/x"), "") == ""


def on_nfs(folder: Path) -> str:
    return f"server:/x {os.path.realpath(folder)} nfs4 rw 0 0\n"


def test_a_run_there_has_no_log_and_says_so(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False, mounts=on_nfs(tmp_path))
    assert not (path / "run.db-wal").exists()
    with sqlite3.connect(path / "run.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() != ("wal",)
    assert len(kernelscope.load(path)) == 40, "it is read while it is written"
    writer.close()
    run = kernelscope.load(path)
    [finding] = [found for found in run.noted_findings() if found.kind == "network-disk"]
    assert "network file system (nfs4)" in finding.message
    assert "record to a local folder" in finding.message
    assert main(["show", str(path)]) == 0
    assert "network-disk" in capsys.readouterr().out
    assert sorted(file.name for file in path.iterdir()) == ["flight", "run.db"]


def test_a_local_run_has_the_log_and_nothing_to_say(tmp_path: Path) -> None:
    writer = write_sample(tmp_path / "x.kscope", close=False, mounts="")
    assert (tmp_path / "x.kscope" / "run.db-wal").exists()
    writer.close()
    noted = kernelscope.load(tmp_path / "x.kscope").noted_findings()
    assert not {"network-disk", "no-file-locks"} & {finding.kind for finding in noted}


# A process that dies in the middle of a transaction whose pages have reached the file.
TORN = """
import os, signal, sys
from pathlib import Path
from tests.support.sample_runs import write_sample
path = Path(sys.argv[1])
writer = write_sample(path, close=False, mounts=f"s:/x {os.path.realpath(path.parent)} lustre rw 0 0")
db = writer.database.db
db.execute("PRAGMA cache_spill=1"); db.execute("PRAGMA cache_size=1")
with writer.lock:
    db.execute("BEGIN")
    rows = [(i, "x" * 999) for i in range(999)]
    db.executemany("INSERT INTO marks (call, kind, text) VALUES (?, 'torn', ?)", rows)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("writable", [True, False])
def test_a_process_that_was_killed_in_a_transaction(tmp_path: Path, writable: bool) -> None:
    path = tmp_path / "x.kscope"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", TORN, path], env=environment, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert (path / "run.db-journal").stat().st_size > 0, "there is something to take back"
    before = (path / "run.db").read_bytes()
    path.chmod(0o755 if writable else 0o555)
    try:
        run = kernelscope.load(path)
        assert len(run) == 40
        assert [mark.kind for mark in run.marks] == ["step"]
        run.close()
        assert crash.crash_in(path) is not None
    finally:
        path.chmod(0o755)
    assert (path / "run.db").read_bytes() == before, "reading changes nothing"


def test_where_sqlite_has_no_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "run.db-shm").mkdir()  # what it shares cannot be made
    made = Database(tmp_path / "run.db", info())
    assert not made.has_log
    made.close()
    (tmp_path / "run.db-shm").rmdir()
    assert kernelscope.load(tmp_path).is_closed


def refused(file: int, how: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_database_that_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite would wait for a minute, and then say that somebody else has it."""
    assert can_lock(tmp_path / "x")
    assert not can_lock(tmp_path / "x", refused)
    monkeypatch.setattr(connection, "can_lock", lambda path: False)
    held = sqlite3.connect(tmp_path / "run.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")  # in vain
    Database(tmp_path / "run.db", info(), log=False).close()
    held.close()
    assert kernelscope.load(tmp_path).is_closed


def test_a_file_that_cannot_be_locked(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "flight", 1, cells=64, lock=refused)
    assert flight.unlocked == os.strerror(errno.ENOLCK)
    assert is_recording(tmp_path / "flight") is None, "nobody holds a lock, and that says nothing"
    flight.status(0, 0, 0, closed=True)
    assert is_recording(tmp_path / "flight") is False
    flight.close()


def test_a_reader_that_cannot_lock(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "flight", 1, cells=64)
    assert is_recording(tmp_path / "flight") is True
    assert is_recording(tmp_path / "flight", refused) is None
    flight.status(0, 0, 0, closed=True)
    assert is_recording(tmp_path / "flight", refused) is False
    flight.close()
    assert is_recording(tmp_path / "missing", refused) is False


def test_what_cannot_be_known_is_said(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Flight.__init__.__kwdefaults__, "lock", refused)
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False, executing=True)
    monkeypatch.undo()
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert flight_reader.UNKNOWN in out
    assert "no-file-locks" in out
    assert main(["show", "--crash", str(path)]) == 0
    assert "or still runs (cannot tell whether it is still being recorded" in capsys.readouterr().out
    assert main(["ls", str(tmp_path)]) == 0
    assert "not closed or running" in capsys.readouterr().out
    assert main(["ls", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["running"] is None
    folder.write_invocation(path, folder.Invocation(("python", "x.py"), "/", 1, 2, -9))
    assert main(["show", "--crash", str(path)]) == 0
    assert "or still runs" not in capsys.readouterr().out, "the command's end is known"
    writer.forget()


def test_a_reader_of_a_run_that_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the log a writer locks readers out. It is not damaged, and no copy is made that may be torn."""
    monkeypatch.setattr(row_reader, "SECONDS_FOR_A_LOCK", 0.05)
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False, mounts=on_nfs(tmp_path))
    read, other = kernelscope.load(path), sqlite3.connect(path / "run.db", isolation_level=None)
    assert len(read) == 40
    other.execute("BEGIN EXCLUSIVE")
    for again in (lambda: len(read), lambda: len(kernelscope.load(path))):
        with pytest.raises(RunError, match="is being written and stays locked; try again"):
            again()
    other.execute("ROLLBACK")
    assert len(read) == len(kernelscope.load(path)) == 40
    other.close()
    writer.close()


GETS_THE_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
try:
    db.execute("BEGIN EXCLUSIVE")
except sqlite3.OperationalError as error:
    print(error)
"""


def test_reading_where_it_is_written_keeps_the_locks(tmp_path: Path) -> None:
    """Closing a file gives up all locks that the process has on it, those of SQLite's writer as well."""
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False, mounts=on_nfs(tmp_path))
    held = sqlite3.connect(path / "run.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    assert len(kernelscope.load(path)) == 40
    words = [sys.executable, "-c", GETS_THE_LOCK, str(path / "run.db")]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "database is locked\n"
    held.execute("ROLLBACK")
    held.close()
    writer.close()
