"""Take fingerprints without waiting for the device; wait only when somebody reads one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernelscope.fingerprint import hashes
from kernelscope.fingerprint.definition import MASK64
from kernelscope.fingerprint.hashes import quiet, reason_against, why_not

Slot: TypeAlias = int
Kind: TypeAlias = str | Callable[[torch.Tensor], object]

__all__ = ["Fingerprinter", "HashFailure", "NotFingerprintable", "Slot", "why_not"]

KNOWN_KINDS = ("bits", "norm")

# A slot is the row in its device's log, with the device's number above it: dense for the first device seen.
_DEVICE_SHIFT = 40
_ROW_MASK = (1 << _DEVICE_SHIFT) - 1

CHUNK_ROWS = 8192


class NotFingerprintable(TypeError):
    """The tensor has no bytes of its own to read; the message says why."""


@dataclass(frozen=True)
class HashFailure:
    """What `read` returns in place of a value that could not be computed."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"<{self.kind} failed: {self.message}>"


class _Chunk:
    """One piece of a log: the values on the device, and the newest copy of them on the host."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.host = values if values.is_cpu else None
        # Counted after the write is enqueued, so that a copy made in between is known to be old.
        self.writes = 0
        self.copied_writes = 0

    @property
    def stale(self) -> bool:
        return not self.values.is_cpu and (self.host is None or self.copied_writes != self.writes)

    def copy(self) -> None:
        self.copied_writes = self.writes
        self.host = self.values.cpu()


class _DeviceLog:
    """One device's `bits` and `norm` values, in rows that are never moved or dropped.

    The owner holds its lock around every method but the two `…_entry`.
    """

    def __init__(self, device: torch.device, number: int, *, bits: bool, norm: bool) -> None:
        self.device = device
        self.number = number
        self.rows = 0
        self._dtypes = {"bits": torch.int64} if bits else {}
        if norm:
            self._dtypes["norm"] = torch.float64
        self._chunks: dict[str, list[_Chunk]] = {"bits": [], "norm": []}
        # Memory that nobody used before: a block from the common pool may still be written to by kernels
        # that are queued on the stream it was freed on, while we write to it from another stream.
        self._pool = torch.cuda.MemPool() if device.type == "cuda" else None

    def append(self) -> int:
        """Reserve the next row."""
        row = self.rows
        if row % CHUNK_ROWS == 0:
            for kind, dtype in self._dtypes.items():
                self._chunks[kind].append(_Chunk(self._allocate(dtype)))
        self.rows = row + 1
        return row

    def _allocate(self, dtype: torch.dtype) -> torch.Tensor:
        pool = nullcontext() if self._pool is None else torch.cuda.use_mem_pool(self._pool, self.device)
        # A tensor born in inference mode could not be written to outside of it.
        with pool, torch.inference_mode(False):
            return torch.empty(CHUNK_ROWS, dtype=dtype, device=self.device)

    def bits_entry(self, row: int) -> torch.Tensor:
        return self._entry("bits", row)

    def norm_entry(self, row: int) -> torch.Tensor:
        return self._entry("norm", row)

    def _entry(self, kind: str, row: int) -> torch.Tensor:
        return self._chunks[kind][row // CHUNK_ROWS].values.narrow(0, row % CHUNK_ROWS, 1)

    def written(self, row: int) -> None:
        """Note that this row's values are on their way."""
        for kind in self._dtypes:
            self._chunks[kind][row // CHUNK_ROWS].writes += 1

    def read_bits(self, row: int) -> int:
        return int(self._read("bits", row))

    def read_norm(self, row: int) -> float:
        return float(self._read("norm", row))

    def _read(self, kind: str, row: int) -> int | float:
        chunk = self._chunks[kind][row // CHUNK_ROWS]
        if chunk.stale:
            self._copy_all()
        assert chunk.host is not None
        return chunk.host[row % CHUNK_ROWS].item()

    def _copy_all(self) -> None:
        """Wait once for all streams of the device, then copy every chunk that has news."""
        stale = [chunk for chunks in self._chunks.values() for chunk in chunks if chunk.stale]
        torch.accelerator.synchronize(self.device)
        for chunk in stale:
            chunk.copy()


class Fingerprinter:
    """Fingerprints tensors into logs on their own devices, and reads them back later.

    >>> taken = Fingerprinter(["bits", "norm"])
    >>> [slot] = taken.take([torch.ones(3)])
    >>> taken.read(slot)
    (17269902497336197382, 3.0)
    """

    def __init__(self, kinds: Sequence[Kind] = ("bits",)) -> None:
        if isinstance(kinds, str):
            kinds = (kinds,)
        for kind in kinds:
            if not callable(kind) and kind not in KNOWN_KINDS:
                known = ", ".join(KNOWN_KINDS)
                raise ValueError(f"unknown fingerprint {kind!r}; known are: {known}, or pass a function")
        if not kinds:
            raise ValueError("a Fingerprinter needs at least one kind")
        self.kinds: tuple[Kind, ...] = tuple(kinds)
        self._bits = "bits" in self.kinds
        self._norm = "norm" in self.kinds
        self._callables = {i: kind for i, kind in enumerate(self.kinds) if not isinstance(kind, str)}
        self._lock = threading.Lock()
        self._logs: list[_DeviceLog] = []
        self._log_of: dict[torch.device, _DeviceLog] = {}
        # What did not go to a log, by slot and place in `kinds`: results of callables, and failures.
        self._values: dict[tuple[Slot, int], object] = {}

    def take(self, tensors: Sequence[torch.Tensor]) -> list[Slot]:
        """Enqueue the fingerprints of these tensors as they are now, and say where each will be."""
        with quiet():
            for tensor in tensors:
                if (reason := reason_against(tensor)) is not None:
                    raise NotFingerprintable(f"cannot fingerprint this tensor: {reason}")
            slots = [self._take(tensor) for tensor in tensors]
        if self._callables:
            with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
                for slot, tensor in zip(slots, tensors, strict=True):
                    for place, function in self._callables.items():
                        self._values[slot, place] = _call(function, tensor)
        return slots

    def _take(self, tensor: torch.Tensor) -> Slot:
        log = self._log_of.get(tensor.device) or self._new_log(tensor.device)
        with self._lock:
            row = log.append()
        slot = log.number << _DEVICE_SHIFT | row
        if self._bits:
            hashes.bits_into(tensor, log.bits_entry(row))
        if self._norm:
            try:
                hashes.norm_into(tensor, log.norm_entry(row))
            except TypeError as error:
                self._values[slot, self.kinds.index("norm")] = HashFailure("norm", str(error))
        with self._lock:
            log.written(row)
        return slot

    def _new_log(self, device: torch.device) -> _DeviceLog:
        with self._lock:
            if device not in self._log_of:
                log = _DeviceLog(device, len(self._logs), bits=self._bits, norm=self._norm)
                self._logs.append(log)
                self._log_of[device] = log
            return self._log_of[device]

    def read(self, slot: Slot) -> object:
        """The value in a slot, or a tuple of them when there are several kinds; may wait for the device."""
        number, row = slot >> _DEVICE_SHIFT, slot & _ROW_MASK
        if slot < 0 or number >= len(self._logs) or row >= self._logs[number].rows:
            raise IndexError(f"no fingerprint was taken into slot {slot}")
        values = tuple(self._read(slot, place, self._logs[number], row) for place in range(len(self.kinds)))
        return values if len(values) > 1 else values[0]

    def _read(self, slot: Slot, place: int, log: _DeviceLog, row: int) -> object:
        kind = self.kinds[place]
        if isinstance(kind, str) and (slot, self.kinds.index(kind)) not in self._values:
            with quiet(), self._lock:
                return log.read_bits(row) & MASK64 if kind == "bits" else log.read_norm(row)
        if isinstance(kind, str):
            return self._values[slot, self.kinds.index(kind)]
        value = self._values[slot, place]
        if isinstance(value, torch.Tensor):
            with quiet():
                value = self._values[slot, place] = value.item()
        return value


def _call(function: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> object:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        value = function(tensor)
        if not isinstance(value, torch.Tensor):
            return value
        if value.numel() == 1:
            # A clone, because the function may have returned a view of what is about to be overwritten.
            return value.detach().clone()
    except Exception as error:
        return HashFailure(name, f"{type(error).__name__}: {error}")
    shape = tuple(value.shape)
    return HashFailure(name, f"returned a tensor of shape {shape}; return a number or a string")
