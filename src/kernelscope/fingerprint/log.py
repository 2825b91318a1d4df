"""Where fingerprints wait until they are read, or until they are on disk; a row never gets another number.

On a device the log holds the sums of the definition, written by kernels that may still be queued; dtype and
length are mixed in when a row is read.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Protocol, TypeAlias

import torch

from kernelscope.fingerprint.cuda.stats_batches import words_of_records

from .chunks import Chunk, during_captures, pool
from .definition import MASK64, MIX_FIRST, MIX_SECOND, SHIFT_FIRST, SHIFT_SECOND, mix
from .stats import NO_NUMBERS, ROW_LENGTH, Stats, StatsRows
from .torch_bits import quiet

CHUNK_ROWS = 8192
_SECONDS_BETWEEN_DRAINS = 0.25
SCRATCH_WORDS = 48 << 10  # enough for most launches


class Rows(Protocol):
    """What the engines of a device write into."""

    @property
    def device(self) -> torch.device: ...
    def address(self, row: int) -> int: ...
    def stats_address(self, row: int) -> int: ...
    def sum_entry(self, row: int) -> torch.Tensor: ...
    def stats_entry(self, row: int) -> torch.Tensor: ...

    def scratch(self, stream: int, programs: int) -> int:
        """The address of memory that the programs of one launch share: counters, zero again at its end,
        then their records. Launches of one stream follow each other, so they use the same."""


def pieces(rows: range) -> Iterator[range]:
    """The parts of these rows that lie in one chunk each."""
    start = rows.start
    while start < rows.stop:
        end = min(rows.stop, start - start % CHUNK_ROWS + CHUNK_ROWS)
        yield range(start, end)
        start = end


def mixed(sums: array[int], salts: array[int]) -> array[int]:
    """What `mix` makes of each of them, as signed numbers."""
    import numpy

    words = numpy.frombuffer(sums, numpy.uint64) ^ numpy.frombuffer(salts, numpy.uint64)
    words *= numpy.uint64(MIX_FIRST)
    words ^= words >> numpy.uint64(SHIFT_FIRST)
    words *= numpy.uint64(MIX_SECOND)
    words ^= words >> numpy.uint64(SHIFT_SECOND)
    return array("q", words.tobytes())


Given: TypeAlias = tuple[Any, int, int]  # the log of a device (None: the host's), the first row, how many


class Reservation:
    """The rows of one execution. When nothing refers to it any more, they are given back.

    Ctrl-C may come between any two steps of Python: also after rows were reserved, and before anything but
    the log knows of them. The log would wait for these until the recording closes.
    """

    __slots__ = ("_back", "rows")

    def __init__(self, back: deque[Given]) -> None:
        self._back = back
        self.rows: Given | None = None  # until all that writes to them is over or enqueued

    def __del__(self) -> None:
        rows: Given | None = getattr(self, "rows", None)  # Ctrl-C may come before there are any
        if rows is not None:
            self._back.append(rows)  # no more than that: any lock may be held at this moment


class DeviceLog:
    """Fingerprints of one device's tensors. The owner holds its lock around every method."""

    rows_at_once = CHUNK_ROWS

    def __init__(self, device: torch.device, *, stats: bool = False) -> None:
        self.device = device
        self.rows = 0
        self._sums: list[Chunk] = []
        self._stats: list[Chunk] | None = [] if stats else None
        self._salts: list[array[int]] = []  # by chunk
        self._numels: list[array[int]] = []
        self._idle: dict[torch.dtype, list[tuple[torch.Tensor, torch.Tensor | None]]] = {}
        self._retired = 0  # chunks before this one are on the host alone
        self._forgotten = 0  # chunks before this one are not kept any more
        self._scratch_lock = threading.Lock()
        self._scratch: dict[int, torch.Tensor] = {}  # by stream
        self._outgrown: list[torch.Tensor] = []  # queued kernels may still use it
        self._pool = pool(device.index) if device.type == "cuda" else None
        self._unfinished = 0  # reservations whose writes are not all enqueued
        self._ready = 0  # rows before this one are on the host
        self._coming: tuple[int, list[torch.cuda.Event]] | None = None  # what `_ready` will be, and when
        self._next_drain = 0.0

    def reserve(
        self, salts: Sequence[int], numels: Sequence[int] = (), reservation: Reservation | None = None
    ) -> int:
        """Room for as many neighbouring rows, which begin as zero; `numels` are for statistics.

        More than `rows_at_once` lie in several pieces of memory, see `pieces`.
        """
        left, count = -self.rows % CHUNK_ROWS, len(salts)
        if left < count:
            self._skip(left)
        first = self.rows
        for start in range(0, count, CHUNK_ROWS):
            if not self.rows % CHUNK_ROWS:
                self._add_chunk()
            self._add_rows(salts[start : start + CHUNK_ROWS], numels[start : start + CHUNK_ROWS])
        # Nothing is called between these two, so that no signal comes between.
        self._unfinished += 1
        if reservation is not None:
            reservation.rows = self, first, count
        return first

    def _add_rows(self, salts: Sequence[int], numels: Sequence[int]) -> None:
        """What an exception, such as Ctrl-C, left behind the last row is replaced."""
        at, count = self.rows % CHUNK_ROWS, len(salts)
        self._salts[-1][at:] = array("Q", salts)
        self._numels[-1][at:] = array("q", numels)
        self.rows += count

    def _add_chunk(self) -> None:
        number = self.rows // CHUNK_ROWS
        for lists in (self._sums, self._stats or [], self._salts, self._numels):
            del lists[number:]  # of a chunk that Ctrl-C kept from being added
        self._sums.append(self._new_chunk(CHUNK_ROWS, torch.int64))
        if self._stats is not None:
            self._stats.append(self._new_chunk(CHUNK_ROWS * ROW_LENGTH, torch.float64))
        self._salts.append(array("Q"))
        self._numels.append(array("q"))

    def _skip(self, rows: int) -> None:
        if not rows:
            return
        self._add_rows([0] * rows, [] if self._stats is None else [NO_NUMBERS] * rows)

    def _new_chunk(self, length: int, dtype: torch.dtype) -> Chunk:
        idle = self._idle.get(dtype)
        if not idle:
            return Chunk(self.zeros(length, dtype))
        values, pinned = idle.pop()
        with quiet(), torch.inference_mode(False):
            values.zero_()
            if values.is_cuda:
                values.record_stream(torch.cuda.current_stream(self.device))
        return Chunk(values, pinned)

    def _retire(self) -> None:
        """Chunks that have come to the host as a whole give their memory on the device to the next."""
        kinds = [self._sums] if self._stats is None else [self._sums, self._stats]
        while (self._retired + 1) * CHUNK_ROWS <= self._ready:
            chunks = [each[self._retired] for each in kinds]
            if any(chunk.is_stale for chunk in chunks):
                return
            for chunk in chunks:
                self._idle.setdefault(chunk.values.dtype, []).append(chunk.retire())
            self._retired += 1

    def forget(self, before: int) -> None:
        """Rows before this one will no longer be read."""
        for number in range(self._forgotten, min(self._retired, before // CHUNK_ROWS)):
            self._sums[number].forget()
            if self._stats is not None:
                self._stats[number].forget()
            self._salts[number] = array("Q")
            self._numels[number] = array("q")
            self._forgotten = number + 1

    def zeros(self, length: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the log's own, cleared by the current stream."""
        # A tensor born in inference mode could not be written to outside of it.
        with quiet(), self._own_memory(), torch.inference_mode(False):
            return torch.zeros(length, dtype=dtype, device=self.device)

    def _own_memory(self) -> AbstractContextManager[None]:
        return nullcontext() if self._pool is None else torch.cuda.use_mem_pool(self._pool, self.device)

    def on_device(self, numbers: Sequence[int]) -> tuple[torch.Tensor, torch.cuda.Event]:
        """A copy of these beside the log, made without waiting, and when it will be there."""
        with quiet(), self._own_memory(), torch.inference_mode(False):
            pinned = torch.tensor(numbers, dtype=torch.int64, device="cpu").pin_memory()
            copy = pinned.to(self.device, non_blocking=True)
            return copy, torch.cuda.current_stream(self.device).record_event()

    def chunk(self, row: int) -> Chunk:
        """The piece of the log that a row is in, where writers that do not call `written` count."""
        return self._sums[row // CHUNK_ROWS]

    def stats_chunk(self, row: int) -> Chunk:
        assert self._stats is not None
        return self._stats[row // CHUNK_ROWS]

    def address(self, row: int) -> int:
        return self._sums[row // CHUNK_ROWS].address + 8 * (row % CHUNK_ROWS)

    def stats_address(self, row: int) -> int:
        assert self._stats is not None
        return self._stats[row // CHUNK_ROWS].address + 8 * ROW_LENGTH * (row % CHUNK_ROWS)

    def scratch(self, stream: int, programs: int) -> int:
        words = words_of_records(programs)
        with self._scratch_lock:  # its own, because launches are enqueued outside of the owner's
            found = self._scratch.get(stream)
            if found is None or len(found) < words:
                if found is not None:
                    self._outgrown.append(found)
                found = self._scratch[stream] = self.zeros(max(words, SCRATCH_WORDS), torch.float64)
        return found.data_ptr()

    def _chunks_of(self, row: int, count: int) -> list[Chunk]:
        """The pieces that so many neighbouring rows lie in."""
        first, end = row // CHUNK_ROWS, (row + count - 1) // CHUNK_ROWS + 1
        return self._sums[first:end] + ([] if self._stats is None else self._stats[first:end])

    def let_stream_write(self, row: int, count: int, stream: int) -> None:
        """Another stream than the one that cleared the chunks waits for that first (the host does not)."""
        for chunk in self._chunks_of(row, count):
            if stream not in chunk.streams:
                if chunk.cleared is None:
                    chunk.cleared = torch.cuda.current_stream(self.device).record_event()
                else:
                    current = torch.cuda.current_stream(self.device)
                    current.wait_event(chunk.cleared)
                    chunk.values.record_stream(current)  # it is not handed out again while we still write
                chunk.streams.add(stream)

    def sum_entry(self, row: int, count: int = 1) -> torch.Tensor:
        """The sums of this row, and of neighbours that were reserved with it."""
        return self._sums[row // CHUNK_ROWS].values.narrow(0, row % CHUNK_ROWS, count)

    def stats_entry(self, row: int, count: int = 1) -> torch.Tensor:
        assert self._stats is not None
        values = self._stats[row // CHUNK_ROWS].values
        return values.narrow(0, row % CHUNK_ROWS * ROW_LENGTH, count * ROW_LENGTH)

    def written(self, row: int, count: int = 1, reservation: Reservation | None = None) -> None:
        """Note that the values of so many rows that were reserved together are on their way."""
        if reservation is not None:
            reservation.rows = None
        self._unfinished -= 1
        for chunk in self._chunks_of(row, count):
            chunk.writes += 1

    def bits(self, row: int) -> int:
        return mix(self._sum(row) & MASK64 ^ self._salts[row // CHUNK_ROWS][row % CHUNK_ROWS])

    def is_blank(self, row: int) -> bool:
        """Whether nothing was written into this row, which was reserved."""
        return not self._sum(row)

    def _sum(self, row: int) -> int:
        return int(self._on_host(self._sums, row)[row % CHUNK_ROWS].item())

    def stats(self, row: int) -> Stats | None:
        """None when the dtype has no numbers."""
        if self._stats is None:
            return None
        values = self._on_host(self._stats, row)
        numel = self._numels[row // CHUNK_ROWS][row % CHUNK_ROWS]
        found = values.narrow(0, row % CHUNK_ROWS * ROW_LENGTH, ROW_LENGTH)
        return None if numel == NO_NUMBERS else Stats.from_row(found.tolist(), numel)

    def many_bits(self, rows: range) -> array[int]:
        """As SQLite has them: signed."""
        return mixed(*self.many_sums(rows))

    def many_sums(self, rows: range) -> tuple[array[int], array[int]]:
        """Copies of the sums and what is mixed into each, so that `mixed` needs no lock."""
        sums, salts = array("q"), array("Q")
        for piece in pieces(rows):
            at = piece.start % CHUNK_ROWS
            found = self._on_host(self._sums, piece.stop - 1).numpy()[at : at + len(piece)]
            sums.frombytes(found.tobytes())
            salts += self._salts[piece.start // CHUNK_ROWS][at : at + len(piece)]
        return sums, salts

    def many_stats(self, rows: range) -> StatsRows:
        assert self._stats is not None
        found = StatsRows(array("d"), array("q"))
        for piece in pieces(rows):
            at = piece.start % CHUNK_ROWS
            found.numels.extend(self._numels[piece.start // CHUNK_ROWS][at : at + len(piece)])
            values = self._on_host(self._stats, piece.stop - 1).numpy()
            found.values.frombytes(values[at * ROW_LENGTH : (at + len(piece)) * ROW_LENGTH].tobytes())
        return found

    def drain(self, stream: int) -> None:
        """Now and then, enqueue a copy of the log to the host, which survives a fault of the device."""
        now = monotonic()
        if now < self._next_drain:
            return
        self._next_drain = now + _SECONDS_BETWEEN_DRAINS
        self.ready()
        chunks = [*self._sums[self._retired :], *(self._stats or [])[self._retired :]]
        # Rows of a graph whose fingerprints are planned may be written at any time.
        if self._coming is not None or self._unfinished or any(c.streams != {stream} for c in chunks):
            return
        with quiet(), during_captures(), torch.inference_mode(False):
            current = torch.cuda.current_stream(self.device)
            events = [chunk.copy_behind(current) for chunk in chunks if chunk.is_stale]
        self._coming = (self.rows, events)

    def ready(self) -> int:
        """Rows before this one can be read without waiting."""
        if self._coming is not None:
            rows, events = self._coming
            try:
                with during_captures():
                    if all(event.query() for event in events):  # type: ignore[no-untyped-call]
                        self._ready, self._coming = rows, None
                        self._retire()
            except RuntimeError:  # the device is lost, and with it what was on its way
                self._coming = None
        return self._ready

    def _on_host(self, chunks: list[Chunk], row: int) -> torch.Tensor:
        chunk = chunks[row // CHUNK_ROWS]
        if row // CHUNK_ROWS < self._forgotten:
            raise IndexError(f"row {row} of the log is no longer kept")
        if row < self._ready and chunk.host is not None:
            return chunk.host
        if chunk.is_stale:
            # Wait once for all streams of the device, then copy every chunk that has news.
            torch.accelerator.synchronize(self.device)
            for each in [*self._sums, *(self._stats or [])]:
                if each.is_stale:
                    each.copy()
        return chunk.wait()
