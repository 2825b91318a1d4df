"""The memory of a device log, piece by piece."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

_RELAXED = 2


class Chunk:
    """One piece of a device log, and the newest copy of it on the host."""

    def __init__(self, values: torch.Tensor, pinned: torch.Tensor | None = None) -> None:
        self.values = values
        self.address = values.data_ptr()
        self._pinned = pinned
        self._is_retired = False
        self.host: torch.Tensor | None = None
        self.arrives: torch.cuda.Event | None = None  # when `host` holds what was written so far
        self.cleared: torch.cuda.Event | None = None
        self.streams: set[int] = set()  # those that are known to come after `cleared`
        # Counted after the write is enqueued, so that a copy made in between is known to be old.
        self.writes = 0
        self.copied_writes = 0

    @property
    def is_stale(self) -> bool:
        return not self._is_retired and (self.host is None or self.copied_writes != self.writes)

    def copy(self) -> None:
        """Now; the device has been waited for."""
        self.copied_writes = self.writes
        self.host, self.arrives = self.values.cpu(), None

    def copy_behind(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Have the stream copy it, behind what it was given so far."""
        self.copied_writes = self.writes
        if self._pinned is None:
            self._pinned = torch.empty(self.values.shape, dtype=self.values.dtype, pin_memory=True)
        self.host = self._pinned
        self.host.copy_(self.values, non_blocking=True)
        self.arrives = stream.record_event()
        return self.arrives

    def retire(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Everything in it is on the host, and nothing will be written to it: another may have its memory."""
        assert self.host is not None
        memory = self.values, self._pinned
        self.values = self.host = self.host.clone()  # not pinned
        self._pinned, self.arrives, self._is_retired = None, None, True
        return memory

    def forget(self) -> None:
        """It is retired, and will no longer be read."""
        self.values = self.host = torch.empty(0, dtype=self.values.dtype, device="cpu")

    def wait(self) -> torch.Tensor:
        """The copy, once it is there."""
        if self.arrives is not None:
            self.arrives.synchronize()
            self.arrives = None
        assert self.host is not None
        return self.host


@cache
def pool(device: int) -> torch.cuda.MemPool:
    """Memory that only logs use: kernels that are still queued may write to a block of the common pool.

    It is never taken down, because that must not happen while a CUDA graph is captured.
    """
    pool = torch.cuda.MemPool()
    # Not at the end either: a process that ends after a capture has failed would be aborted.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool


@contextmanager
def during_captures() -> Iterator[None]:
    """Allow what would otherwise spoil a capture and does not concern it: load a kernel, query an event."""
    mode = ctypes.c_int(_RELAXED)
    exchange = _driver().cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
