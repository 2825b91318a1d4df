"""The log of fingerprints of CPU tensors."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .stats import NO_NUMBERS, ROW_LENGTH, Stats, StatsRows


class HostLog:
    """Fingerprints of CPU tensors, which are there as soon as they are taken.

    The owner holds its lock around every method but `set_stats` and `set_bits`. Between looking up
    `_forgotten` and using it, these call nothing, so that no other thread comes between.
    """

    def __init__(self) -> None:
        self._bits = array("Q")
        self._stats = array("d")
        self._numels = array("q")
        self._forgotten = 0  # rows before this one are not kept any more

    @property
    def rows(self) -> int:
        return self._forgotten + len(self._bits)

    def forget(self, before: int) -> None:
        """Rows before this one will no longer be read."""
        count = before - self._forgotten
        if count > 0:
            del self._bits[:count]
            del self._stats[: count * ROW_LENGTH]
            del self._numels[:count]
            self._forgotten = before

    def append(self, bits: int, stats: Sequence[float] | None = None, numel: int = NO_NUMBERS) -> int:
        """The row that these are in; a log has statistics in every row or in none."""
        if stats:
            self._put_statistics(array("d", stats), [numel])
        self._bits.append(bits)
        return self.rows - 1

    def reserve(self, rows: int, numels: Sequence[int] = ()) -> int:
        """Room for as many neighbouring rows; they begin as zero. `numels` are for statistics."""
        first = self.rows
        if numels:
            self._put_statistics(array("d", bytes(8 * rows * ROW_LENGTH)), numels)
        self._bits.frombytes(bytes(8 * rows))
        return first

    def _put_statistics(self, values: array[float], numels: Sequence[int]) -> None:
        """Behind all rows; before the bits, which count them: what Ctrl-C leaves here is then replaced."""
        at = len(self._bits)
        self._stats[at * ROW_LENGTH :] = values
        self._numels[at:] = array("q", numels)

    def set_stats(self, row: int, stats: Sequence[float]) -> None:
        values = array("d", stats)
        at = (row - self._forgotten) * ROW_LENGTH
        if at >= 0:  # otherwise it is not kept any more
            self._stats[at : at + ROW_LENGTH] = values

    def set_bits(self, row: int, bits: int) -> None:
        at = row - self._forgotten
        if at >= 0:
            self._bits[at] = bits

    def bits(self, row: int) -> int:
        return self._bits[self._place(row)]

    def _place(self, row: int) -> int:
        if row < self._forgotten:
            raise IndexError(f"row {row} of the log is no longer kept")
        return row - self._forgotten

    def many_bits(self, rows: range) -> array[int]:
        """As SQLite has them: signed."""
        first = self._place(rows.start)
        return array("q", self._bits[first : first + len(rows)].tobytes())

    def many_stats(self, rows: range) -> StatsRows:
        first = self._place(rows.start)
        values = self._stats[first * ROW_LENGTH : (first + len(rows)) * ROW_LENGTH]
        return StatsRows(values, self._numels[first : first + len(rows)])

    def is_blank(self, row: int) -> bool:
        """Whether nothing was written into this row, which was reserved."""
        return not self._bits[self._place(row)]

    def stats(self, row: int) -> Stats | None:
        """None when the dtype has no numbers."""
        at = self._place(row)
        if self._numels[at] == NO_NUMBERS:
            return None
        return Stats.from_row(self._stats[at * ROW_LENGTH : (at + 1) * ROW_LENGTH], self._numels[at])
