"""Takes fingerprints without waiting for the device; only reading one waits."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import definition, torch_bits, torch_stats
from .cpu import bits as cpu_bits
from .cpu import stats as cpu_stats
from .cuda import ahead
from .cuda import engine as cuda
from .cuda import stats as cuda_stats
from .definition import MASK64, same_nan
from .host_log import HostLog
from .log import DeviceLog, Rows, mixed
from .reserved_rows import DEVICE_SHIFT, ReservedRows, Slot
from .stats import ROW_LENGTH, Stats, StatsRow, StatsRows
from .torch_bits import missing_memory, quiet, reason_against, salt, why_not
from .user_functions import HashFailure, call, name_of

Level = Literal["hash", "stats"]
Kind: TypeAlias = str | Callable[[torch.Tensor], object]

__all__ = ["Fingerprinter", "HashFailure", "NotFingerprintable", "Slot", "why_not"]

KNOWN_KINDS = ("bits", "norm")

# A slot is the row in its log, with the log's number above it: 0 is the host's.
_ROW_MASK = (1 << DEVICE_SHIFT) - 1
_NO_ROW = (0.0,) * ROW_LENGTH
_NOT_READ = "its graph raised an exception, or the recording was closed, before this tensor was read"


class NotFingerprintable(TypeError):
    """The tensor has no bytes of its own to read; the message says why."""


class Fingerprinter(ReservedRows):
    """Fingerprints tensors into logs on their own devices, and reads them back later.

    At level "stats" the statistics of each tensor are kept as well, whatever the kinds are.

    >>> taken = Fingerprinter(["bits", "norm"])
    >>> [slot] = taken.take([torch.ones(3)])
    >>> taken.read(slot)
    (17269902497336197382, 3.0)
    """

    def __init__(self, kinds: Sequence[Kind] = ("bits",), *, level: Level = "hash") -> None:
        super().__init__()
        if isinstance(kinds, str):
            kinds = (kinds,)
        for kind in kinds:
            if not callable(kind) and kind not in KNOWN_KINDS:
                known = ", ".join(KNOWN_KINDS)
                raise ValueError(f"unknown fingerprint {kind!r}; known are: {known}, or pass a function")
        if not kinds:
            raise ValueError("a Fingerprinter needs at least one kind")
        if level not in get_args(Level):
            raise ValueError(f"unknown level {level!r}; use one of {', '.join(map(repr, get_args(Level)))}")
        self.kinds: tuple[Kind, ...] = tuple(kinds)
        self._bits, self._norm = "bits" in self.kinds, "norm" in self.kinds
        self.has_stats = level == "stats"
        self.takes_stats = self._norm or self.has_stats
        # Engines are compiled once on a machine, and now, so that the first launch need not wait for it.
        ahead.start("stats" if self.takes_stats else "hash")
        self.slow_because = self._why_slow()  # values of CPU tensors; empty when they are not slow
        self._callables = {i: kind for i, kind in enumerate(self.kinds) if not isinstance(kind, str)}
        self.fallback_count = 0  # tensors that only the torch engine could fingerprint
        self._log_of: dict[torch.device, tuple[int, DeviceLog]] = {}
        self.sees_shapes = bool(self._callables)
        # What did not go to a log, by slot and place in `kinds`: results of callables, and failures.
        self._values: dict[tuple[Slot, int], object] = {}

    def _why_slow(self) -> str:
        if not self.takes_stats and not self._bits:
            return ""
        library = cpu_stats.LIBRARY if self.takes_stats else cpu_bits.LIBRARY
        if reason := library.unavailable():
            return f"values of CPU tensors are computed with torch operators, which is slower: {reason}"
        if reason := library.uncached():
            return (
                f"the C++ code for values of CPU tensors was compiled for this process alone: {reason}; "
                "set XDG_CACHE_HOME to a folder that only you can write to"
            )
        return ""

    def take(self, tensors: Sequence[torch.Tensor]) -> list[Slot]:
        """Enqueue the fingerprints of these tensors as they are now, and say where each will be."""
        with quiet():
            for tensor in tensors:
                if (reason := reason_against(tensor)) is not None:
                    raise NotFingerprintable(f"cannot fingerprint this tensor: {reason}")
        return self.take_known(tensors)

    def take_known(self, tensors: Sequence[torch.Tensor]) -> list[Slot]:
        """The same for tensors of a kind that `why_not` has accepted: only their memory is looked at."""
        with torch._C.DisableTorchFunction():
            for tensor in tensors:
                if (reason := missing_memory(tensor)) is not None:
                    raise NotFingerprintable(f"cannot fingerprint this tensor: {reason}")
            if len({tensor.get_device() for tensor in tensors}) == 1:  # of the CPU: -1
                slots = self._take_on(tensors[0].device, tensors)
            else:
                slots = [slot for tensor in tensors for slot in self._take_on(tensor.device, [tensor])]
        if self._callables:
            with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
                for slot, tensor in zip(slots, tensors, strict=True):
                    for place, function in self._callables.items():
                        self._values[slot, place] = call(function, tensor)
        return slots

    def _take_on(self, device: torch.device, tensors: Sequence[torch.Tensor]) -> list[Slot]:
        if device.type == "cpu":
            return [self._take_on_host(tensor) for tensor in tensors]
        number, log = self.log_of(device)
        if len(tensors) > log.rows_at_once:  # the lists of an optimizer's step can be that long
            some, others = tensors[: log.rows_at_once], tensors[log.rows_at_once :]
            return [*self._take_on(device, some), *self._take_on(device, others)]
        salts = [salt(t.dtype, t.nbytes) for t in tensors]
        numels = [torch_stats.numel(t) for t in tensors] if self.takes_stats else ()
        stream = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None
        reservation = self.reservation()
        first = self.reserve_on_device(log, salts, stream, numels, reservation)
        try:
            self.enqueue(log, first, tensors)
        finally:  # also when that failed: nothing is copied to the host while rows are still to be written
            self.enqueued(log, first, reservation=reservation)
        slots = [self.slot(number, row) for row in range(first, first + len(tensors))]
        if self._norm:
            for slot, tensor in zip(slots, tensors, strict=True):
                self._note_if_numberless(slot, tensor.dtype)
        return slots

    def enqueue(self, log: Rows, first: int, tensors: Sequence[torch.Tensor]) -> None:
        """Have the device write the fingerprints of these tensors into the rows from `first` on."""
        if not self.takes_stats and not self._bits:
            return
        done = [False] * len(tensors)
        if log.device.type == "cuda" and not cuda.unavailable():
            if self.takes_stats:
                done = cuda_stats.accumulate(tensors, log, first)
            else:
                done = cuda.accumulate(tensors, log.address(first), log.device.index)
        if not all(done):
            with quiet():
                for row, tensor in enumerate(tensors, first):
                    if not done[row - first]:
                        self.fallback_count += 1
                        torch_bits.sum_into(tensor, log.sum_entry(row))
                        if self.takes_stats and torch_stats.has_numbers(tensor.dtype):
                            torch_stats.stats_into(tensor, log.stats_entry(row))

    def _take_on_host(self, tensor: torch.Tensor) -> Slot:
        if self.takes_stats:
            return self._take_stats_on_host(tensor)
        bits = self._bits_on_host(tensor) if self._bits else 0
        with self._lock:
            return self.host_log.append(bits)

    def _bits_on_host(self, tensor: torch.Tensor) -> int:
        total = cpu_bits.accumulate(tensor)
        if total is None:  # no compiler here, or a lazy conjugate
            self.fallback_count += 1
            with quiet():
                out = torch.zeros(1, dtype=torch.int64, device="cpu")
                torch_bits.sum_into(tensor, out)
                total = int(out.item()) & MASK64
        return definition.mix(total ^ salt(tensor.dtype, tensor.nbytes))

    def _take_stats_on_host(self, tensor: torch.Tensor) -> Slot:
        found = cpu_stats.accumulate(tensor)
        row: Sequence[float]
        if found is not None:
            total, row = found
            bits = definition.mix(total ^ salt(tensor.dtype, tensor.nbytes))
        else:  # no numbers, no compiler, or a lazy conjugate
            bits, row = self._bits_on_host(tensor), _NO_ROW
            if torch_stats.has_numbers(tensor.dtype):
                with quiet():
                    out = torch.zeros(ROW_LENGTH, dtype=torch.float64, device="cpu")
                    torch_stats.stats_into(tensor, out)
                    row = out.tolist()
        with self._lock:
            slot = self.host_log.append(bits, row, torch_stats.numel(tensor))
        if self._norm:
            self._note_if_numberless(slot, tensor.dtype)
        return slot

    def note_replayed(self, slot: Slot, dtype: torch.dtype) -> None:
        """Note what a CUDA graph cannot leave in this slot."""
        for place, function in self._callables.items():
            self._values[slot, place] = HashFailure(
                name_of(function), "a Python function cannot run inside a CUDA graph"
            )
        if self._norm:
            self._note_if_numberless(slot, dtype)

    def _note_if_numberless(self, slot: Slot, dtype: torch.dtype) -> None:
        if not torch_stats.has_numbers(dtype):
            message = f"norm needs numbers, and {dtype} has none; use bits"
            self._values[slot, self.kinds.index("norm")] = HashFailure("norm", message)

    def fail(self, slot: Slot, why: str) -> None:
        """Note that nothing was written into this slot, and why."""
        self._values[slot, 0] = HashFailure(str(self.kinds[0]), why)

    def forget(self, slot: Slot) -> None:
        """Slots of this log before this one are on disk, and will no longer be read."""
        log, row = self._log_and_row(slot)
        with self._lock:
            log.forget(row)
            first = slot - row
            # In one step: launching threads add to it without the lock.
            for known in [key for key in list(self._values) if first <= key[0] < slot]:
                del self._values[known]
            self._doubted -= {doubted for doubted in self._doubted if first <= doubted < slot}

    def log_of(self, device: torch.device) -> tuple[int, DeviceLog]:
        """The log of a device, and its number."""
        known = self._log_of.get(device)
        if known is not None:
            return known
        with self._lock:
            if device not in self._log_of:
                self._devices.append(DeviceLog(device, stats=self.takes_stats))
                self._log_of[device] = (len(self._devices), self._devices[-1])
            return self._log_of[device]

    def read(self, slot: Slot) -> object:
        """The value in a slot, or a tuple of them when there are several kinds; may wait for the device."""
        log, row = self._log_and_row(slot)
        values = tuple(same_nan(self._read(slot, place, log, row)) for place in range(len(self.kinds)))
        return values if len(values) > 1 else values[0]

    def stats(self, slot: Slot) -> Stats | None:
        """The statistics in a slot, None where the dtype has no numbers; may wait for the device."""
        if not self.takes_stats:
            raise ValueError('this Fingerprinter took no statistics; make it with level="stats"')
        log, row = self._log_and_row(slot)
        with quiet(), self._lock:
            return None if slot in self._doubted and log.is_blank(row) else log.stats(row)

    def read_many(self, start: Slot, stop: Slot) -> tuple[array[int], StatsRows | list[StatsRow]] | None:
        """The bits (signed) and statistics of neighbouring slots; None where each has to be read by itself.

        May wait for the device.
        """
        if self.kinds != ("bits",) or any(start <= slot < stop for slot, _ in list(self._values)):
            return None
        log, row = self._log_and_row(start)
        self._log_and_row(stop - 1)
        rows = range(row, row + stop - start)
        with quiet(), self._lock:
            if any(start <= slot < stop for slot in self._doubted):
                return None
            found = log.many_bits(rows) if isinstance(log, HostLog) else log.many_sums(rows)
            stats: StatsRows | list[StatsRow] = log.many_stats(rows) if self.takes_stats else []
        # Without the lock, for which the program waits.
        return found if isinstance(found, array) else mixed(*found), stats

    def _log_and_row(self, slot: Slot) -> tuple[HostLog | DeviceLog, int]:
        number, row = slot >> DEVICE_SHIFT, slot & _ROW_MASK
        logs: list[HostLog | DeviceLog] = [self.host_log, *self._devices]
        if slot < 0 or number >= len(logs) or row >= logs[number].rows:
            raise IndexError(f"no fingerprint was taken into slot {slot}")
        return logs[number], row

    def failures(self, slot: Slot) -> list[HashFailure]:
        """What could not be computed for this slot; never waits."""
        values = [self._values.get((slot, place)) for place in range(len(self.kinds))]
        return [value for value in values if isinstance(value, HashFailure)]

    def _read(self, slot: Slot, place: int, log: HostLog | DeviceLog, row: int) -> object:
        kind = self.kinds[place]
        if isinstance(kind, str) and (slot, self.kinds.index(kind)) not in self._values:
            if kind == "bits":
                with quiet(), self._lock:
                    if slot in self._doubted and log.is_blank(row):
                        return HashFailure(kind, _NOT_READ)
                    return log.bits(row)
            found = self.stats(slot)
            return None if found is None else found.norm
        if isinstance(kind, str):
            return self._values[slot, self.kinds.index(kind)]
        value = self._values[slot, place]
        if isinstance(value, torch.Tensor):
            with quiet():
                value = self._values[slot, place] = value.item()
        return value
