"""Statistics as run.db has them, many at a time: by C++, without Python's lock, where there is a compiler."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope.fingerprint.stats import NO_NUMBERS, ROW_LENGTH, StatsRow, StatsRows
from kernelscope.native.load import OnDemand

from . import codec

_LONGEST = 28 * (ROW_LENGTH + 1) + 2  # characters of one text


class StatTexts:
    """One loaded library."""

    NAME = "stat_texts"
    SOURCE = Path(__file__).with_name("stat_texts.cpp")
    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        self._write: Any = ctypes.CDLL(str(library)).stat_texts
        self._write.argtypes = (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_void_p,
        )
        self._write.restype = None

    def of(self, rows: StatsRows) -> tuple[bytes, array[int]]:
        """All texts, and where each ends. One is empty where its row takes more than numbers."""
        count = len(rows)
        out, ends = bytearray(max(1, count) * _LONGEST), array("q", bytes(8 * count))
        values, numels = array("d", rows.values), array("q", rows.numels)  # their own memory
        given = [each.buffer_info()[0] for each in (values, numels)]
        text = (ctypes.c_char * len(out)).from_buffer(out)
        self._write(*given, count, text, ends.buffer_info()[0])
        return bytes(memoryview(out)[: ends[-1]]) if count else b"", ends

    def computes(self) -> bool:
        """Whether a text reads as the numbers that it was made of."""
        values = array("d", [-0.5, 1e300, 0.1, 3.0, 1e-7, 1.0, 2.0, 0.0, 4.0] * 2)
        values[ROW_LENGTH] = float("nan")
        text, ends = self.of(StatsRows(values + values[:ROW_LENGTH], array("q", [9, 9, NO_NUMBERS])))
        return text == b"[9,-0.5,1e+300,0.1,3.0,1e-07,1,2,0,4]" and ends.tolist() == [len(text)] * 3


LIBRARY = OnDemand(StatTexts)


class JoinedTexts(NamedTuple):
    """The texts of many rows as one, and those that C++ does not write."""

    text: bytes
    starts: array[int]
    lengths: array[int]
    others: list[tuple[int, str | None]]


def joined_texts(rows: StatsRows) -> JoinedTexts | None:
    """None without a compiler."""
    library = LIBRARY.get()
    if library is None:
        return None
    text, ends = library.of(rows)
    starts = array("q", [0]) + ends[:-1]
    lengths = array("q", map(sub, ends, starts))
    others = [(i, codec.stats_row_text(rows[i])) for i, length in enumerate(lengths) if not length]
    return JoinedTexts(text, starts, lengths, others)


def stat_texts(rows: Iterable[StatsRow]) -> list[str | None]:
    """One by one, with Python's lock."""
    return [codec.stats_row_text(row) for row in rows]
