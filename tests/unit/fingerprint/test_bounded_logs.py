"""A log of fingerprints gives its memory to the next rows, however long a recording lasts."""

from __future__ import annotations

import sqlite3
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tests.support.sample_runs import info

from kernelscope.fingerprint import log as log_module
from kernelscope.fingerprint.definition import mix
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.fingerprint.host_log import HostLog
from kernelscope.fingerprint.log import CHUNK_ROWS, DeviceLog
from kernelscope.fingerprint.stats import ROW_LENGTH, Stats
from kernelscope.store.run_db.row_writer import Database
from kernelscope.store.run_db.used_slots import UsedSlots


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> DeviceLog:
    monkeypatch.setattr(log_module, "during_captures", nullcontext)
    return DeviceLog(torch.device("cpu"), stats=True)


def fill(log: DeviceLog, rows: int, value: int) -> int:
    first = log.reserve([7] * rows, [3] * rows)
    assert not log.sum_entry(first, rows).any(), "rows begin as zero"
    log.sum_entry(first, rows).fill_(value)
    log.stats_entry(first, rows).fill_(value % 5)
    log.written(first)
    return first


def arrive(log: DeviceLog) -> None:
    """As a drain does, on a device whose copies are there at once."""
    for chunk in [*log._sums[log._retired :], *(log._stats or [])[log._retired :]]:
        if chunk.is_stale:
            chunk.copy()
    log._coming = (log.rows, [])
    assert log.ready() == log.rows


def test_memory_on_the_device_is_used_again(log: DeviceLog) -> None:
    firsts = []
    for value in range(1, 60):
        firsts.append(fill(log, 1000, value))
        arrive(log)
    assert log.rows > 7 * CHUNK_ROWS
    assert len({chunk.address for chunk in log._sums}) <= 2
    assert log._stats is not None
    assert len({chunk.address for chunk in log._stats}) <= 2
    for value, first in enumerate(firsts, 1):
        assert {log.bits(first), log.bits(first + 999)} == {mix(value ^ 7)}
        stats = log.stats(first)
        assert stats is not None
        assert stats.l1 == value % 5
    every = log.many_bits(range(firsts[0], firsts[-1]))
    assert {bits % (1 << 64) for bits in every} >= {mix(value ^ 7) for value in range(1, 59)}
    log.forget(3 * CHUNK_ROWS)
    with pytest.raises(IndexError):
        log.bits(firsts[0])
    rows = [Stats.from_row(*row) for row in log.many_stats(range(firsts[40], firsts[40] + 2))]
    assert rows == [log.stats(firsts[40])] * 2
    assert sum(len(salts) for salts in log._salts) == log.rows - 3 * CHUNK_ROWS


def test_what_is_not_on_the_host_stays(log: DeviceLog) -> None:
    for value in range(1, 40):
        fill(log, 1000, value)
    assert log._retired == 0
    assert len({chunk.address for chunk in log._sums}) == len(log._sums)


def test_what_is_on_disk_is_not_kept(tmp_path: Path) -> None:
    taken, slots = Fingerprinter(), UsedSlots()
    slots.planned_by = taken
    database = Database(tmp_path / "run.db", info())
    for number in range(30):
        rows = 10_000
        first = taken.reserve_on_host(rows)
        for row in range(first, first + rows):
            taken.host_log.set_bits(row, row * 3 + 1)
        slots.add_planned(first, rows)
        assert taken.ready(0) == first
        taken.written_on_host(first)
        with database as db:
            slots.write(db, final=False)
        slots.forget_written(database)
        assert taken.host_log.rows == (number + 1) * rows
        assert len(taken.host_log._bits) <= 80_000
    assert taken.read(299_999) == 299_999 * 3 + 1
    database.close()
    with sqlite3.connect(tmp_path / "run.db") as db:
        assert db.execute("SELECT count(*), sum(bits = slot * 3 + 1) FROM fingerprints").fetchone() == (
            300_000,
            300_000,
        )


def test_what_is_not_taken_yet_at_the_end_has_no_hash(tmp_path: Path) -> None:
    taken, slots = Fingerprinter(), UsedSlots()
    slots.planned_by = taken
    first = taken.reserve_on_host(3)  # of a graph call that another thread is executing
    taken.host_log.set_bits(first, 7)
    slots.add_planned(first, 3)
    database = Database(tmp_path / "run.db", info())
    with database as db:
        slots.write(db, final=True)
    database.close()
    with sqlite3.connect(tmp_path / "run.db") as db:
        assert db.execute("SELECT bits FROM fingerprints").fetchall() == [(7,), (None,), (None,)]


def test_statistics_that_arrive_while_rows_are_forgotten() -> None:
    log = HostLog()
    log.reserve(20, [1] * 20)

    def row() -> Iterator[float]:
        log.forget(10)  # as the writer's thread does
        yield from [7.0] * ROW_LENGTH

    log.set_stats(15, row())  # type: ignore[arg-type]
    found = log.stats(15)
    assert found is not None
    assert found.max == 7.0
    log.set_bits(19, 1)
    log.set_stats(9, [8.0] * ROW_LENGTH)
    log.set_bits(9, 2)
    assert (log.bits(19), log.rows) == (1, 20), "what comes too late goes nowhere else"
    assert [values[0] for values, _ in log.many_stats(range(10, 20))] == [0.0] * 5 + [7.0] + [0.0] * 4


def test_failures_are_noted_while_rows_are_forgotten() -> None:
    taken, is_over = Fingerprinter(), threading.Event()
    taken.reserve_on_host(100_000)

    def fail() -> None:
        for slot in range(50_000, 100_000 - 3):
            taken.fail(slot, "no reason")
            taken.doubt(range(slot, slot + 3))
        is_over.set()

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=fail)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        slot = 0
        while not is_over.is_set():
            slot += 1
            taken.forget(slot)
            assert taken.read_many(49_000, 49_010) == (array("q", [0] * 10), [])
    finally:
        sys.setswitchinterval(interval)
        thread.join()
