"""What the writer puts into run.db many at a time, with a compiler and without one."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests.support.sample_runs import info

from kernelscope.fingerprint.stats import NO_NUMBERS, Stats, StatsRows
from kernelscope.store.flight import native_noter
from kernelscope.store.run_db import codec, stat_texts
from kernelscope.store.run_db.row_writer import Database

_LARGEST = (1 << 63) - 1


@pytest.fixture(params=["C++", "Python"])
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Python":
        for library in (native_noter.LIBRARY, stat_texts.LIBRARY):
            monkeypatch.setattr(library, "get", lambda: None)
    elif native_noter.LIBRARY.get() is None:
        pytest.skip("there is no C++ compiler")
    return str(request.param)


def written(tmp_path: Path, write: Callable[[Database], None], select: str) -> list[Any]:
    database = Database(tmp_path / "run.db", info())
    with database:
        write(database)
    database.close()
    connection = sqlite3.connect(tmp_path / "run.db")
    try:
        return connection.execute(select).fetchall()
    finally:
        connection.close()


def test_noted_calls_have_their_numbers(tmp_path: Path, language: str) -> None:
    random = numpy.random.default_rng(0)
    table = random.integers(0, _LARGEST, (9001, 6), numpy.int64)
    table[:, 0] = 3 * numpy.arange(len(table)) + (1 << 41)
    table[::3, 2] = -1
    table[::5, 4:] = 0
    table[7, 1:] = _LARGEST
    rows = written(
        tmp_path,
        lambda db: db.noted_calls(table.tobytes()),
        "SELECT id, site, graph_call, start_ns, duration_ns, layout, typeof(start_ns) FROM calls ORDER BY id",
    )
    expected = [(*row[:4], row[4] or None, row[5] or None, "integer") for row in table.tolist()]
    assert rows == expected


class Taken:
    """Fingerprints that were taken: bits, and maybe statistics."""

    def __init__(self, bits: array[int], stats: StatsRows | None = None) -> None:
        self.bits, self.rows, self.has_stats = bits, stats, stats is not None

    def stats(self, slot: int) -> Stats | None:
        raise AssertionError("they are read many at a time")

    def read_many(self, start: int, stop: int) -> tuple[array[int], StatsRows | list[Any]]:
        return self.bits[start:stop], self.rows[start:stop] if self.rows is not None else []


def test_hashes_are_signed(tmp_path: Path, language: str) -> None:
    bits = array("q", [0, -1, -(1 << 63), _LARGEST] * 3000)
    rows = written(
        tmp_path,
        lambda db: db.fingerprints(Taken(bits), 0, range(5, len(bits))),
        "SELECT slot, bits, stats, typeof(bits) FROM fingerprints ORDER BY slot",
    )
    assert rows == [(slot, bits[slot], None, "integer") for slot in range(5, len(bits))]


def written_statistics(tmp_path: Path, rows: StatsRows) -> list[Stats | None]:
    bits = array("q", range(len(rows)))
    found = written(
        tmp_path,
        lambda db: db.fingerprints(Taken(bits, rows), 0, range(len(rows))),
        "SELECT slot, bits, stats FROM fingerprints ORDER BY slot",
    )
    assert [row[:2] for row in found] == [(slot, slot) for slot in range(len(rows))]
    return [codec.stats_of(text) for _, _, text in found]


@pytest.mark.parametrize(
    "row",
    [
        ([0.1, 3.0, 1e-310, -0.0, 1e300, 0, 0, 0, 7], 9),
        ([float("nan")] * 4 + [0.0, 1, 1, 1, 0], 3),
        ([1.0, 2.0, 1.5, 0.5, float("inf"), 0, 0, 0, 0], 9),
        ([1e308, 1e308, 1e308, 0.0, 1e308, 2, 0, 1, 0], 9),
        ([-1.0, 2.0, 1 / 3, 0.5, 3.0, 0, 0, 0, 0], 1 << 60),
        ([0.0] * 9, NO_NUMBERS),
    ],
)
def test_statistics_have_the_same_text_however_many(
    row: tuple[list[float], int], tmp_path: Path, language: str
) -> None:
    one = None if row[1] == NO_NUMBERS else Stats.from_row(*row)
    assert codec.stats_row_text(row) == codec.stats_text(one)
    rows = StatsRows(array("d", 3 * row[0]), array("q", [row[1]] * 3))
    assert written_statistics(tmp_path, rows) == [one] * 3


def test_statistics_of_any_numbers_have_texts(tmp_path: Path, language: str) -> None:
    random = numpy.random.default_rng(0)
    bits = random.integers(0, 1 << 64, 9 * 5000, numpy.uint64).view(numpy.float64).copy()
    bits[::7] = random.integers(0, 1 << 40, len(bits[::7]))
    values = bits.reshape(-1, 9)
    values[:, 5:] = random.integers(0, 5, values[:, 5:].shape)
    rows = StatsRows(array("d", values.ravel().tolist()), array("q", [1 << 40] * len(values)))
    expected = [Stats.from_row(*row) for row in rows]
    assert list(map(repr, written_statistics(tmp_path, rows))) == list(map(repr, expected))
