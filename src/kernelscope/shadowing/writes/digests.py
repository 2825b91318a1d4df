"""Numbers that change with any bit of a tensor: of all tensors that are asked for at once, in one go.

On a GPU one kernel digests many of them, and the host waits once for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelscope.fingerprint.cpu import bits as cpu_bits
from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.fingerprint.definition import MASK64
from kernelscope.fingerprint.torch_bits import sum_into

_ENTRIES = 256  # of a log, at least


def digest(tensor: torch.Tensor) -> int:
    return digests([tensor])[0]


def digests(tensors: Sequence[torch.Tensor]) -> list[int]:
    """One for each, of its elements in their logical order."""
    queue = DigestQueue()
    return [queue.value(number) for number in queue.put(tensors)]


class DigestQueue:
    """Digests that are read later: until then nobody waits for a GPU."""

    def __init__(self) -> None:
        self._values: list[int | None] = []  # None: not read yet
        self._logs: dict[tuple[torch.device, int], _Log] = {}  # with room, by device and stream
        self._unread: list[_Log] = []

    def put(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Begin to digest these, as they are now; the numbers of their digests."""
        first = len(self._values)
        left: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
        for number, tensor in enumerate(tensors, first):
            if tensor._is_zerotensor():  # these have no memory
                tensor = torch.zeros_like(tensor)
            known = cpu_bits.accumulate(tensor) if tensor.device.type == "cpu" else None
            if known is None:
                left.setdefault(tensor.device, []).append((number, tensor))
            self._values.append(known)
        for device, found in left.items():
            log = self._log(device, len(found))
            _enqueue([tensor for _, tensor in found], log.room(len(found)))
            log.numbers += [number for number, _ in found]
        return list(range(first, len(self._values)))

    def value(self, number: int) -> int:
        if self._values[number] is None:
            self._read()
        found = self._values[number]
        assert found is not None
        return found

    def _read(self) -> None:
        for log in self._unread:
            if log.stream != _stream(log.entries.device):  # what it waits for is enqueued elsewhere
                torch.cuda.synchronize(log.entries.device)
            for number, value in zip(log.numbers, log.entries.tolist(), strict=False):
                self._values[number] = value & MASK64
        self._unread, self._logs = [], {}

    def _log(self, device: torch.device, count: int) -> _Log:
        """One with room for so many, which the current stream fills."""
        stream = _stream(device)
        log = self._logs.get((device, stream))
        if log is None or len(log.numbers) + count > len(log.entries):
            size = max(count, _ENTRIES)
            log = _Log(torch.zeros(size, dtype=torch.int64, device=device), stream)
            self._logs[device, stream] = log
            self._unread.append(log)
        return log


class _Log:
    """Digests that a device computes."""

    __slots__ = ("entries", "numbers", "stream")

    def __init__(self, entries: torch.Tensor, stream: int) -> None:
        self.entries, self.stream = entries, stream
        self.numbers: list[int] = []  # by entry: which digest of the queue it is

    def room(self, count: int) -> torch.Tensor:
        """The next entries that are free."""
        used = len(self.numbers)
        return self.entries[used : used + count]


def _enqueue(tensors: Sequence[torch.Tensor], log: torch.Tensor) -> None:
    done = [False] * len(tensors)
    if log.device.type == "cuda" and not cuda.unavailable():
        done = cuda.accumulate(tensors, log.data_ptr(), log.device.index or 0)
    for i, tensor in enumerate(tensors):
        if not done[i]:
            sum_into(tensor, log[i : i + 1])


def _stream(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0
