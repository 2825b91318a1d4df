"""Where fingerprints wait until somebody reads them.

A row is never moved or dropped. On a device the log holds the sums of the definition, written by kernels
that may still be queued; dtype and length are mixed in when a row is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from .definition import MASK64, mix
from .hashes import quiet

CHUNK_ROWS = 8192


class HostLog:
    """Fingerprints of CPU tensors, which are there as soon as they are taken."""

    def __init__(self) -> None:
        self._bits = array("Q")
        self._norms = array("d")

    @property
    def rows(self) -> int:
        return len(self._bits)

    def append(self, bits: int, norm: float) -> int:
        self._bits.append(bits)
        self._norms.append(norm)
        return len(self._bits) - 1

    def reserve(self, rows: int) -> int:
        """Room for as many neighbouring rows; they begin as zero."""
        first = len(self._bits)
        self._bits.frombytes(bytes(8 * rows))
        self._norms.frombytes(bytes(8 * rows))
        return first

    def set_bits(self, row: int, bits: int) -> None:
        self._bits[row] = bits

    def set_norm(self, row: int, norm: float) -> None:
        self._norms[row] = norm

    def bits(self, row: int) -> int:
        return self._bits[row]

    def norm(self, row: int) -> float:
        return self._norms[row]


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


class DeviceLog:
    """Fingerprints of one device's tensors. The owner holds its lock around every method."""

    rows_at_once = CHUNK_ROWS

    def __init__(self, device: torch.device, *, norm: bool) -> None:
        self.device = device
        self.rows = 0
        self._salts = array("Q")
        self._sums: list[Chunk] = []
        self._norms: list[Chunk] | None = [] if norm else None
        # Memory that nobody used before: a block from the common pool may still be written to by kernels
        # that are queued on the stream it was freed on, while we write to it from another stream.
        self._pool = torch.cuda.MemPool() if device.type == "cuda" else None

    def reserve(self, salts: Sequence[int]) -> int:
        """Room for as many neighbouring rows; they begin as zero."""
        left = -self.rows % CHUNK_ROWS
        if left < len(salts):
            self._skip(left)
            self._sums.append(Chunk(self._zeros(torch.int64)))
            if self._norms is not None:
                self._norms.append(Chunk(self._zeros(torch.float64)))
        row = self.rows
        self._salts.extend(salts)
        self.rows += len(salts)
        return row

    def _skip(self, rows: int) -> None:
        self._salts.extend([0] * rows)
        self.rows += rows

    def _zeros(self, dtype: torch.dtype) -> torch.Tensor:
        # A tensor born in inference mode could not be written to outside of it.
        with quiet(), self._own_memory(), torch.inference_mode(False):
            return torch.zeros(CHUNK_ROWS, dtype=dtype, device=self.device)

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

    def let_stream_write(self, row: int, stream: int) -> None:
        """Another stream than the one that cleared the chunk waits for that first (the host does not)."""
        chunks = self._sums if self._norms is None else [*self._sums, *self._norms]
        for chunk in chunks[row // CHUNK_ROWS :: len(self._sums)]:
            if stream not in chunk.streams:
                if chunk.cleared is None:
                    chunk.cleared = torch.cuda.current_stream(self.device).record_event()
                else:
                    torch.cuda.current_stream(self.device).wait_event(chunk.cleared)
                chunk.streams.add(stream)

    def sum_entry(self, row: int) -> torch.Tensor:
        return self._sums[row // CHUNK_ROWS].values.narrow(0, row % CHUNK_ROWS, 1)

    def norm_entry(self, row: int) -> torch.Tensor:
        assert self._norms is not None
        return self._norms[row // CHUNK_ROWS].values.narrow(0, row % CHUNK_ROWS, 1)

    def written(self, row: int) -> None:
        """Note that the values of this row and its neighbours are on their way."""
        self._sums[row // CHUNK_ROWS].writes += 1
        if self._norms is not None:
            self._norms[row // CHUNK_ROWS].writes += 1

    def bits(self, row: int) -> int:
        total = int(self._read(self._sums[row // CHUNK_ROWS], row))
        return mix(total & MASK64 ^ self._salts[row])

    def norm(self, row: int) -> float:
        assert self._norms is not None
        return float(self._read(self._norms[row // CHUNK_ROWS], row))

    def _read(self, chunk: Chunk, row: int) -> int | float:
        if chunk.is_stale:
            # Wait once for all streams of the device, then copy every chunk that has news.
            torch.accelerator.synchronize(self.device)
            for each in [*self._sums, *(self._norms or [])]:
                if each.is_stale:
                    each.copy()
        assert chunk.host is not None
        return chunk.host[row % CHUNK_ROWS].item()
