"""Fingerprints inside a CUDA graph: each replay writes the same rows, which are then copied to the log."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import torch

from kernelscope.fingerprint.cuda.captured_launches import TABLE_WORDS, CapturedLaunches
from kernelscope.fingerprint.cuda.stats_batches import words_of_records

from .chunks import during_captures
from .cuda import engine as cuda
from .fingerprinter import Fingerprinter, Slot
from .log import CHUNK_ROWS, SCRATCH_WORDS, DeviceLog, pieces
from .stats import ROW_LENGTH
from .torch_bits import missing_memory, quiet, salt
from .torch_stats import numel

ROWS_AT_MOST = 2 * CHUNK_ROWS
_TOGETHER = 32  # tensors that are put off at most
_BYTES_TOGETHER = 32 << 20  # their memory is not used again meanwhile


class CannotCapture(Exception):
    """Why a tensor inside a CUDA graph has no fingerprint."""


class CapturedRows:
    """The rows of one CUDA graph: what the engines want of a log, at addresses that never change."""

    def __init__(self, log: DeviceLog, *, stats: bool) -> None:
        self.device = log.device
        self._sums = log.zeros(ROWS_AT_MOST, torch.int64)
        self._stats = log.zeros(ROWS_AT_MOST * ROW_LENGTH, torch.float64) if stats else None
        self._scratch = log.zeros(SCRATCH_WORDS, torch.float64) if stats else None
        self._scratch_stream = 0
        self._launches: CapturedLaunches | None = None
        if self.device.type == "cuda" and not stats and not cuda.unavailable():
            self._launches = CapturedLaunches(log.zeros(TABLE_WORDS, torch.int64))
        self._replayed_on: set[int] = set()

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self._memory)

    @property
    def _memory(self) -> list[torch.Tensor]:
        tables = self._launches.tables if self._launches is not None else None
        return [t for t in (self._sums, self._stats, self._scratch, tables) if t is not None]

    def clear(self) -> None:
        self._sums.zero_()

    def address(self, row: int) -> int:
        return self._sums.data_ptr() + 8 * row

    def stats_address(self, row: int) -> int:
        assert self._stats is not None
        return self._stats.data_ptr() + 8 * ROW_LENGTH * row

    def sum_entry(self, row: int) -> torch.Tensor:
        return self._sums.narrow(0, row, 1)

    def stats_entry(self, row: int) -> torch.Tensor:
        assert self._stats is not None
        return self._stats.narrow(0, row * ROW_LENGTH, ROW_LENGTH)

    def scratch(self, stream: int, programs: int) -> int:
        assert self._scratch is not None
        if self._scratch_stream not in (0, stream):
            raise CannotCapture("statistics inside a CUDA graph are taken on one stream only")
        if words_of_records(programs) > SCRATCH_WORDS:
            raise CannotCapture("a tensor is too large for statistics inside a CUDA graph")
        self._scratch_stream = stream
        return self._scratch.data_ptr()

    def written_on(self, stream: int) -> None:
        """A replay writes to the rows from this stream: they are not handed out again while it still does."""
        if stream not in self._replayed_on:
            self._replayed_on.add(stream)
            for memory in self._memory:
                memory.record_stream(torch.cuda.current_stream(self.device))

    def enqueue_together(self, row: int, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """Hash these into the rows from this one on, several in one launch; which of them could be."""
        if self._launches is None or all(tensor.is_contiguous() for tensor in tensors):
            return [False] * len(tensors)  # the usual way has one launch for several as well
        return self._launches.enqueue(tensors, self.address(row))

    def copy_to(self, log: DeviceLog, first: int, count: int) -> None:
        """Enqueue a copy of the first rows into the log, from its row `first` on."""
        for piece in pieces(range(first, first + count)):
            row, length = piece.start - first, len(piece)
            log.sum_entry(piece.start, length).copy_(self._sums.narrow(0, row, length), non_blocking=True)
            if self._stats is not None:
                source = self._stats.narrow(0, row * ROW_LENGTH, length * ROW_LENGTH)
                log.stats_entry(piece.start, length).copy_(source, non_blocking=True)


class CapturedFingerprints:
    """A fingerprinter while a CUDA graph is captured; copies what replays leave to the log."""

    def __init__(self, fingerprinter: Fingerprinter, device: torch.device) -> None:
        self.fingerprinter = fingerprinter
        self.sees_shapes = fingerprinter.sees_shapes
        self._number, self._log = fingerprinter.log_of(device)
        with quiet():
            self.rows = CapturedRows(self._log, stats=fingerprinter.takes_stats)
        self._salts = array("Q")
        self._numels = array("q")
        self._dtypes: list[torch.dtype] = []
        self._pending: list[torch.Tensor] = []  # of the newest rows: not enqueued yet
        self.waits = False  # whether tensors may be put off, so that one kernel reads several

    @property
    def count(self) -> int:
        """Rows that a replay writes."""
        return len(self._salts)

    def begin(self) -> None:
        """First thing in the capture: each replay starts from zero."""
        with quiet():
            self.rows.clear()

    def take(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        return self.take_known(tensors)

    def take_known(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The rows where the fingerprints of these tensors will be after each replay."""
        first = len(self._salts)
        if first + len(tensors) > ROWS_AT_MOST:
            raise CannotCapture(f"there is room for {ROWS_AT_MOST} fingerprints in one CUDA graph")
        for tensor in tensors:
            if tensor.device != self._log.device:
                raise CannotCapture(f"a tensor is on {tensor.device}, the CUDA graph on {self._log.device}")
            if (reason := missing_memory(tensor)) is not None:
                raise CannotCapture(reason)
        self._salts.extend([salt(t.dtype, t.nbytes) for t in tensors])
        self._dtypes += [t.dtype for t in tensors]
        if self.fingerprinter.takes_stats:
            self._numels.extend([numel(t) for t in tensors])
        self._pending += tensors
        nbytes = sum(tensor.nbytes for tensor in self._pending)
        if not self.waits or len(self._pending) >= _TOGETHER or nbytes > _BYTES_TOGETHER:
            self.flush()
        return list(range(first, len(self._salts)))

    def flush(self) -> None:
        """Enqueue what has been put off."""
        pending, self._pending = self._pending, []
        if pending:
            first = len(self._salts) - len(pending)
            with during_captures():  # a kernel that is met for the first time is loaded
                done = self.rows.enqueue_together(first, pending)
                if not any(done):
                    self.fingerprinter.enqueue(self.rows, first, pending)
                    return
                for place, tensor in enumerate(pending):
                    if not done[place]:
                        self.fingerprinter.enqueue(self.rows, first + place, [tensor])

    def make_way(self, written: Iterable[torch.Tensor]) -> None:
        """These are going to be written to: what lies in the same memory is read before."""
        if self._pending:
            with torch._C.DisableTorchFunction():
                there = [_span(tensor) for tensor in self._pending]
                spans = [_span(tensor) for tensor in written]
            if any(start < stop and begin < end for start, end in there for begin, stop in spans):
                self.flush()

    def replayed(self) -> Slot:
        """Enqueue a copy of what this replay is going to leave; the slot of its first row."""
        if not self._salts:
            return self.fingerprinter.slot(self._number, 0)
        device = self._log.device
        stream = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None
        reservation = self.fingerprinter.reservation()
        first = self.fingerprinter.reserve_on_device(
            self._log, self._salts, stream, self._numels, reservation
        )
        with quiet():
            if stream is not None:
                self.rows.written_on(stream)
            self.rows.copy_to(self._log, first, len(self._salts))
        self.fingerprinter.enqueued(self._log, first, len(self._salts), reservation)
        slot = self.fingerprinter.slot(self._number, first)
        if self.fingerprinter.kinds != ("bits",):
            for row, dtype in enumerate(self._dtypes):
                self.fingerprinter.note_replayed(slot + row, dtype)
        return slot


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of all of its memory."""
    memory = tensor.untyped_storage()
    start = memory.data_ptr()
    return start, start + memory.nbytes()
