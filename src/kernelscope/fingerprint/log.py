"""Where fingerprints wait until somebody reads them.

A row is never moved or dropped. On a device the log holds the sums of the definition, written by kernels
that may still be queued; dtype and length are mixed in when a row is read. At level "stats" each row has its
statistics beside it.
"""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol

import torch

from .definition import MASK64, mix
from .hashes import quiet
from .stats import ROW_LENGTH, Stats

CHUNK_ROWS = 8192
SCRATCH_COUNTERS, SCRATCH_RECORD = 8, 10  # in 64-bit words, as cuda_records has them
SCRATCH_WORDS = 48 << 10  # enough for most launches
NO_NUMBERS = -1  # stands for the number of elements where the dtype has no statistics


class Rows(Protocol):
    """What the engines of a device write into."""

    @property
    def device(self) -> torch.device: ...
    def address(self, row: int) -> int: ...
    def stats_address(self, row: int) -> int: ...
    def sum_entry(self, row: int) -> torch.Tensor: ...
    def stats_entry(self, row: int) -> torch.Tensor: ...

    def scratch(self, stream: int, programs: int) -> int:
        """The address of memory for what programs of one launch tell each other: zeros, then their records.

        A stream's launches follow each other, so they share it. A launch leaves its counters as zero.
        """


class HostLog:
    """Fingerprints of CPU tensors, which are there as soon as they are taken."""

    def __init__(self) -> None:
        self._bits = array("Q")
        self._stats = array("d")
        self._numels = array("q")

    @property
    def rows(self) -> int:
        return len(self._bits)

    def append(self, bits: int, stats: Sequence[float] | None = None, numel: int = NO_NUMBERS) -> int:
        """The row that these are in; a log has statistics in every row or in none."""
        self._bits.append(bits)
        if stats:
            self._stats.extend(stats)
            self._numels.append(numel)
        return len(self._bits) - 1

    def reserve(self, rows: int) -> int:
        """Room for as many neighbouring rows; they begin as zero."""
        first = len(self._bits)
        self._bits.frombytes(bytes(8 * rows))
        return first

    def set_bits(self, row: int, bits: int) -> None:
        self._bits[row] = bits

    def bits(self, row: int) -> int:
        return self._bits[row]

    def stats(self, row: int) -> Stats | None:
        """None when the dtype has no numbers."""
        if self._numels[row] == NO_NUMBERS:
            return None
        return Stats.from_row(self._stats[row * ROW_LENGTH : (row + 1) * ROW_LENGTH], self._numels[row])


class Chunk:
    """One piece of a device log, and the newest copy of it on the host."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.address = values.data_ptr()
        self.host: torch.Tensor | None = None
        self.cleared: torch.cuda.Event | None = None
        self.streams: set[int] = set()  # those that are known to come after `cleared`
        # Counted after the write is enqueued, so that a copy made in between is known to be old.
        self.writes = 0
        self.copied_writes = 0

    @property
    def is_stale(self) -> bool:
        return self.host is None or self.copied_writes != self.writes

    def copy(self) -> None:
        self.copied_writes = self.writes
        self.host = self.values.cpu()


@cache
def _pool(device: int) -> torch.cuda.MemPool:
    """Memory that only logs use.

    A block from the common pool may still be written to by kernels that are queued on the stream it was freed
    on, while we write to it from another. One pool for all logs that is never taken down, because that must
    not happen while a CUDA graph is captured.
    """
    pool = torch.cuda.MemPool()
    # Not at the end either: a process that ends after a capture has failed would be aborted.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool


class DeviceLog:
    """Fingerprints of one device's tensors. The owner holds its lock around every method."""

    rows_at_once = CHUNK_ROWS

    def __init__(self, device: torch.device, *, stats: bool = False) -> None:
        self.device = device
        self.rows = 0
        self._salts = array("Q")
        self._sums: list[Chunk] = []
        self._stats: list[Chunk] | None = [] if stats else None
        self._numels = array("q")
        self._scratch_lock = threading.Lock()
        self._scratch: dict[int, torch.Tensor] = {}  # by stream
        self._outgrown: list[torch.Tensor] = []  # queued kernels may still use it
        self._pool = _pool(device.index) if device.type == "cuda" else None

    def reserve(self, salts: Sequence[int], numels: Sequence[int] = ()) -> int:
        """Room for as many neighbouring rows, which begin as zero; `numels` are for statistics."""
        left = -self.rows % CHUNK_ROWS
        if left < len(salts):
            self._skip(left)
            self._sums.append(Chunk(self.zeros(CHUNK_ROWS, torch.int64)))
            if self._stats is not None:
                self._stats.append(Chunk(self.zeros(CHUNK_ROWS * ROW_LENGTH, torch.float64)))
        row = self.rows
        self._salts.extend(salts)
        self._numels.extend(numels)
        self.rows += len(salts)
        return row

    def _skip(self, rows: int) -> None:
        self._salts.extend([0] * rows)
        if self._stats is not None:
            self._numels.extend([NO_NUMBERS] * rows)
        self.rows += rows

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
        """The piece of the log that a row is in: who writes there without `written` counts it there."""
        return self._sums[row // CHUNK_ROWS]

    def address(self, row: int) -> int:
        return self._sums[row // CHUNK_ROWS].address + 8 * (row % CHUNK_ROWS)

    def stats_address(self, row: int) -> int:
        assert self._stats is not None
        return self._stats[row // CHUNK_ROWS].address + 8 * ROW_LENGTH * (row % CHUNK_ROWS)

    def scratch(self, stream: int, programs: int) -> int:
        words = SCRATCH_COUNTERS + SCRATCH_RECORD * programs
        with self._scratch_lock:  # its own, because launches are enqueued outside of the owner's
            found = self._scratch.get(stream)
            if found is None or len(found) < words:
                if found is not None:
                    self._outgrown.append(found)
                found = self._scratch[stream] = self.zeros(max(words, SCRATCH_WORDS), torch.float64)
        return found.data_ptr()

    def let_stream_write(self, row: int, stream: int) -> None:
        """Another stream than the one that cleared the chunk waits for that first (the host does not)."""
        chunks = self._sums if self._stats is None else [*self._sums, *self._stats]
        for chunk in chunks[row // CHUNK_ROWS :: len(self._sums)]:
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

    def written(self, row: int) -> None:
        """Note that the values of this row and its neighbours are on their way."""
        self._sums[row // CHUNK_ROWS].writes += 1
        if self._stats is not None:
            self._stats[row // CHUNK_ROWS].writes += 1

    def bits(self, row: int) -> int:
        total = int(self._fresh(self._sums[row // CHUNK_ROWS])[row % CHUNK_ROWS].item())
        return mix(total & MASK64 ^ self._salts[row])

    def stats(self, row: int) -> Stats | None:
        """None when the dtype has no numbers."""
        if self._stats is None or self._numels[row] == NO_NUMBERS:
            return None
        values = self._fresh(self._stats[row // CHUNK_ROWS])
        found = values.narrow(0, row % CHUNK_ROWS * ROW_LENGTH, ROW_LENGTH)
        return Stats.from_row(found.tolist(), self._numels[row])

    def _fresh(self, chunk: Chunk) -> torch.Tensor:
        """The chunk on the host."""
        if chunk.is_stale:
            # Wait once for all streams of the device, then copy every chunk that has news.
            torch.accelerator.synchronize(self.device)
            for each in [*self._sums, *(self._stats or [])]:
                if each.is_stale:
                    each.copy()
        assert chunk.host is not None
        return chunk.host
