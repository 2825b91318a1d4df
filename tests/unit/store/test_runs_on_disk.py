"""What is written is what is read."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_runs import (
    ARGS,
    GRAPH,
    Hashes,
    compact_call,
    full_call,
    info,
    make_older,
    site,
    write_sample,
)

import kernelscope
from kernelscope import RunError
from kernelscope.events import Call, GraphCall
from kernelscope.model.run import Run
from kernelscope.store.flight.reader import read_flight
from kernelscope.store.flight.recorder import Flight
from kernelscope.store.memory_run import MemoryRun
from kernelscope.store.packing import pack, unpack
from kernelscope.store.run_db import codec
from kernelscope.store.run_db.schema import COLUMNS, OBJECTS, SCHEMA_VERSION, TABLES
from kernelscope.store.writer_thread import Writer

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers(),
    lambda inner: (
        st.lists(inner).map(tuple) | st.dictionaries(st.text().filter(lambda k: k[:1] != "$"), inner)
    ),
)


@given(plain_values)
def test_values_survive_json(value: Any) -> None:
    # By text: NaN differs from itself, and a lone surrogate cannot be stored.
    expected = repr(value).encode("utf-8", "replace").decode()
    read = repr(codec.from_json(codec.to_json(value))).encode("utf-8", "replace").decode()
    if "\\ud" not in expected:
        assert read == expected


@given(st.integers(0, (1 << 64) - 1))
def test_fingerprints_survive(bits: int) -> None:
    _, stored, other, _ = codec.fingerprint_row(3, bits)
    assert -(1 << 63) <= stored < 1 << 63
    assert codec.fingerprint_value(stored, other) == bits


def test_values_of_other_kinds() -> None:
    @dataclass
    class Stats:
        mean: float
        nans: int

    _, bits, text, _ = codec.fingerprint_row(0, Stats(float("nan"), 2))
    assert bits is None
    read = codec.fingerprint_value(None, text)
    assert read.nans == 2
    assert repr(read) == "Stats(mean=nan, nans=2)"


def facts(call: Any) -> tuple[Any, ...]:
    return (
        call.index, call.kernel_name, call.kind, call.source, call.grid, call.config, call.origin, call.stack,
        call.step, call.phase, call.thread, call.stream, call.device, call.graph, call.time, call.error,
        call.args, call.roles, call.storages, call.uninitialised, call.pre_hashes, call.post_hashes,
        call.pre_stats, call.post_stats, call.wrapper_names, call.wrapper_line, call.parent, call.replay,
    )  # fmt: skip


def memory_run() -> Run:
    run = MemoryRun(info())
    run.graph_calls[0] = GraphCall(0, GRAPH, 7, 0, "forward", 1)
    for number in range(10):
        call = full_call(number, site(number % 2), Hashes())
        call.parent, call.replay = number - 1, number % 3 - 1
        run.entries.append(call)
    return run


def test_a_saved_run_reads_as_it_was(tmp_path: Path) -> None:
    run = memory_run()
    path = run.save(tmp_path / "saved")
    assert path.name == "saved.kscope"
    read = kernelscope.load(path)
    assert [facts(c) for c in read.calls] == [facts(c) for c in run.calls]
    assert str(read) == str(run)
    assert read.info == run.info
    assert (read.kernels, read.graphs, read.findings) == (run.kernels, run.graphs, run.findings)
    with pytest.raises(RunError, match="already exists"):
        run.save(path)
    again = kernelscope.load(read.save(tmp_path / "again"))
    assert [facts(c) for c in again.calls] == [facts(c) for c in run.calls]
    assert again.findings == run.findings


def test_selecting_on_disk_is_selecting_in_memory(tmp_path: Path) -> None:
    run = memory_run()
    run.entries[3] = full_call(3, site(5, "other_kernel"))
    read = kernelscope.load(run.save(tmp_path / "saved"))
    for wanted in (
        {"kernel": "other*"}, {"kernel": ["*relu*", "other*"]}, {"kind": "cpp"}, {"kind": "triton"},
        {"graph": 0}, {"graph": "0_forward"}, {"graph": "none"}, {"step": 1}, {"step": 2},
        {"phase": "forward", "first": 4, "limit": 2}, {"first": 8},
    ):  # fmt: skip
        assert [c.index for c in read.select(**wanted)] == [c.index for c in run.select(**wanted)], wanted


def test_recorded_calls_are_all_there(tmp_path: Path) -> None:
    writer = write_sample(tmp_path / "run.kscope")
    run = kernelscope.load(tmp_path / "run.kscope")
    assert [c.index for c in run.calls] == list(range(40))
    assert run.is_closed
    assert [c.index for c in run.calls if c.error] == [14]
    assert run.calls[1].phase == "forward"  # a noted call: from its graph call
    assert run.calls[1].uninitialised == (1,)
    assert run.calls[2].pre_hashes == {0: Hashes().read(4)}
    assert [(m.index, m.kind) for m in run.marks] == [(40, "step")]
    assert writer.calls == 40
    assert not (tmp_path / "run.kscope" / "run.db-wal").exists()


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    writer = write_sample(tmp_path / "run.kscope", close=False, executing=True)
    run = kernelscope.load(tmp_path / "run.kscope")
    assert len(run) == 40
    assert not run.is_closed
    [executing] = [cell for cell in run.flight.cells if cell.is_executing]
    assert executing.index == 40
    writer.close()
    assert len(run) == 41


def test_queries(tmp_path: Path) -> None:
    write_sample(tmp_path / "run.kscope")
    run = kernelscope.load(tmp_path / "run.kscope")
    _, rows = run.query("SELECT kernel, count(*), min(line), max(step) FROM call GROUP BY 1 ORDER BY 1")
    assert rows == [
        ("cpp_fused_noted_1", 20, 13, 1),
        ("cpp_fused_relu_0", 10, 11, 1),
        ("extern_kernels.mm", 10, 12, 1),
    ]
    names, rows = run.query("SELECT * FROM hash WHERE call = 2 ORDER BY position")
    assert names == ["call", "position", "name", "before", "after"]
    assert rows[0] == (2, 0, "in_ptr0", f"{Hashes().read(4):016x}", f"{Hashes().read(4):016x}")
    assert rows[1][3] is None


def test_each_column_has_a_type() -> None:
    for version, objects in OBJECTS.items():
        db = sqlite3.connect(":memory:")
        for name in TABLES.keys() & objects.keys():
            db.execute(objects[name])
            assert len(COLUMNS[version][name]) == len(db.execute(f"PRAGMA table_info({name})").fetchall())


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_run_of_an_older_schema_still_reads(version: int, tmp_path: Path) -> None:
    write_sample(tmp_path / "run.kscope")
    new = kernelscope.load(tmp_path / "run.kscope")
    expected = [facts(call) for call in new.calls]
    new.close()
    with closing(sqlite3.connect(tmp_path / "run.kscope" / "run.db")) as db:
        make_older(db, version)
        db.commit()
    assert [facts(call) for call in kernelscope.load(tmp_path / "run.kscope").calls] == expected


def test_outputs_that_were_poisoned(tmp_path: Path) -> None:
    """What a kernel declares and never writes is found in a run from disk as in a live one."""
    writer, fingerprinter = Writer(tmp_path, info()), Hashes()
    for number in range(4):
        call = full_call(next(writer.flight), site(1), fingerprinter)
        call.poison = {1: 2 * number + 1 if number == 2 else 500 + number}
        writer.enter(call)
        writer.leave(call)
    writer.close()
    run = kernelscope.load(tmp_path)
    assert run.calls[0].poison_hashes == {1: fingerprinter.read(500)}
    assert [f.call for f in run.findings if f.kind == "never-written"] == [2]
    run.save(tmp_path / "again")
    assert kernelscope.load(tmp_path / "again").calls[0].poison_hashes == {1: fingerprinter.read(500)}


def test_packing_while_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed file is the run at one moment, though SQLite may take in its log at any moment."""
    writer, copy = write_sample(tmp_path / "x.kscope", close=False), shutil.copyfile

    def copy_and_go_on(*files: Any) -> Any:
        made = copy(*files)
        writer.database.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return made

    monkeypatch.setattr(shutil, "copyfile", copy_and_go_on)
    packed = pack(tmp_path / "x.kscope", tmp_path / "x.zip")
    monkeypatch.undo()
    run = kernelscope.load(unpack(packed, tmp_path / "y.kscope"))
    assert [c.index for c in run.calls] == list(range(40))
    writer.close()


def test_many_threads_and_a_small_ring(tmp_path: Path) -> None:
    """The ring wraps many times while four threads write; nothing is lost, and memory does not grow."""
    writer, at = Writer(tmp_path, info(), cells=256), site(1, args=ARGS[:3])
    each = 3000

    def work() -> None:
        for _ in range(each):
            writer.note(compact_call(writer, at, -1))()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    run = kernelscope.load(tmp_path)
    assert [c.index for c in run.calls] == list(range(4 * each))


def test_a_call_that_never_ends_does_not_stop_the_others(tmp_path: Path) -> None:
    writer, at = Writer(tmp_path, info(), cells=64), site(1, args=ARGS[:3])
    stuck = writer.note(compact_call(writer, at, -1))
    for _ in range(1000):
        writer.note(compact_call(writer, at, -1))()
    stuck()  # its slot belongs to another by now
    writer.close()
    assert [c.index for c in kernelscope.load(tmp_path).calls] == list(range(1001))


def test_a_noted_call_that_raises(tmp_path: Path) -> None:
    writer, at = Writer(tmp_path, info()), site(1, args=ARGS[:3])
    for graph_call, line in ((5, at.line), (6, at.line + 1)):
        writer.note(compact_call(writer, at, graph_call))
        writer.note_failed(graph_call, line, "RuntimeError: no")
    writer.note_failed(5, at.line, "RuntimeError: it is over")
    writer.close()
    first, second = kernelscope.load(tmp_path).calls
    assert first.error == "RuntimeError: no"
    assert second.error == "", "another line of the wrapper raised"


def test_full_calls_keep_their_order_in_the_ring(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "flight", 1, cells=16)
    for number in range(40):
        flight.enter(Call(next(flight), site(number % 3), 5, start_ns=number))
    log = read_flight(tmp_path / "flight")
    assert [cell.index for cell in log.cells] == list(range(25, 40))  # the oldest may be half written
    assert set(log.sites) == {0, 1, 2}
    assert all(cell.is_executing and cell.is_full for cell in log.cells)
