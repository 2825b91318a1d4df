"""Statistics as run.db has them, many at a time: by C++, without Python's lock, where there is a compiler."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.fingerprint.stats import NO_NUMBERS, ROW_LENGTH, StatsRows
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

    def of(self, rows: StatsRows) -> list[str]:
        """Empty where a row takes more than numbers."""
        count = len(rows)
        out, ends = bytearray(max(1, count) * _LONGEST), array("q", bytes(8 * count))
        values, numels = array("d", rows.values), array("q", rows.numels)  # their own memory
        given = [each.buffer_info()[0] for each in (values, numels)]
        text = (ctypes.c_char * len(out)).from_buffer(out)
        self._write(*given, count, text, ends.buffer_info()[0])
        written = bytes(out[: ends[-1]]).decode("ascii") if count else ""
        starts = [0, *ends]
        return [written[start:end] for start, end in zip(starts, ends, strict=False)]

    def computes(self) -> bool:
        """Whether a text reads as the numbers that it was made of."""
        values = array("d", [-0.5, 1e300, 0.1, 3.0, 1e-7, 1.0, 2.0, 0.0, 4.0] * 2)
        values[ROW_LENGTH] = float("nan")
        [plain, special, none] = self.of(
            StatsRows(values + values[:ROW_LENGTH], array("q", [9, 9, NO_NUMBERS]))
        )
        return plain == "[9,-0.5,1e+300,0.1,3.0,1e-07,1,2,0,4]" and not special and not none


LIBRARY = OnDemand(StatTexts)


def stat_texts(rows: StatsRows) -> Sequence[str | None]:
    library = LIBRARY.get()
    if library is None:
        return [codec.stats_row_text(row) for row in rows]
    texts = library.of(rows)
    return [text or codec.stats_row_text(rows[i]) for i, text in enumerate(texts)]
