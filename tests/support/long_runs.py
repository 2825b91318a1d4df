"""Runs of very many calls on disk, made quickly: rows straight into the tables, as they are recorded."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tests.support.sample_runs import GRAPH, info

from kernelscope.events import Arg, Frame, GraphCall, Kernel, Site, TensorSpec
from kernelscope.store.run_db.row_writer import Database

SITES = 50
_SPEC = TensorSpec("float32", (64, 64), (64, 1), "cpu")
_ARGS = (
    Arg("in_ptr0", "in", _SPEC, "a"),
    Arg("in_ptr1", "in", _SPEC, "b"),
    Arg("out_ptr0", "out", _SPEC, "c"),
)


def write_long_run(folder: Path, calls: int) -> Path:
    """A graph of 50 kernels, executed again and again; each kernel reads the two results before it."""
    folder.mkdir(parents=True)
    database = Database(folder / "run.db", info(uuid=str(folder)))
    with database as db:
        kernels = [
            Kernel(i, f"cpp_fused_relu_{i}", "cpp", "inductor", f"source {i}", f"hash {i}")
            for i in range(SITES)
        ]
        db.sites(
            (Site(i, kernel, _ARGS, "/wrapper.py", i, None, {}, (Frame("/model.py", i, "f"),), "cpu"), None)
            for i, kernel in enumerate(kernels)
        )
        db.graph_calls([GraphCall(e, GRAPH, 7, 0, "forward", e) for e in range(calls // SITES + 1)])
        rows = db.db.executemany
        rows(
            "INSERT INTO calls VALUES (?, ?, ?, ?, NULL, ?, 'forward', 7, 0, NULL, NULL, NULL)", _calls(calls)
        )
        rows(
            "INSERT INTO details VALUES (?, '[]', ?, '[0, 0, 0]', '[0, 0, 0]', '[2]', ?, ?, 0, NULL)",
            _details(calls),
        )
        rows("INSERT INTO fingerprints VALUES (?, ?, NULL, NULL)", ((s, _bits(s)) for s in range(calls + 2)))
    database.close()
    return folder


def copy_with_a_fault(run: Path, folder: Path, call: int) -> Path:
    """The same run, but for what one call left, and all that was computed from it to the end of the step."""
    shutil.copytree(run, folder)
    with sqlite3.connect(folder / "run.db") as db:
        db.execute("UPDATE info SET value = json_quote(?) WHERE key = 'uuid'", (str(folder),))
        last = call - call % SITES + SITES - 1
        db.execute("UPDATE fingerprints SET bits = bits + 1 WHERE slot BETWEEN ? AND ?", (call + 2, last + 2))
    db.close()
    return folder


def copy_without_a_call(run: Path, folder: Path, call: int) -> Path:
    """The same run without one call: all that follows has other numbers."""
    shutil.copytree(run, folder)
    with sqlite3.connect(folder / "run.db") as db:
        db.execute("UPDATE info SET value = json_quote(?) WHERE key = 'uuid'", (str(folder),))
        for table, column in (("calls", "id"), ("details", "call")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (call,))
            db.execute(f"UPDATE {table} SET {column} = -{column} WHERE {column} > ?", (call,))
            db.execute(f"UPDATE {table} SET {column} = -{column} - 1 WHERE {column} < 0")
    db.close()
    return folder


def _calls(count: int) -> Iterator[tuple[int, ...]]:
    return ((i, i % SITES, i // SITES, 1000 * i, i // SITES) for i in range(count))


def _details(count: int) -> Iterator[tuple[int, str, str, str]]:
    for i in range(count):
        slots = f'{{"0": {i}, "1": {i + 1}'
        yield i, f"[{i}, {i + 1}, {i + 2}]", slots + "}", f'{slots}, "2": {i + 2}}}'


def _bits(slot: int) -> int:
    return slot * 0x9E3779B97F4A7C15 % (1 << 64) - (1 << 63)
