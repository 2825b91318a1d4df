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

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.address = values.data_ptr()
        self.host: torch.Tensor | None = None
        self.arrives: torch.cuda.Event | None = None  # when `host` holds what was written so far
        self.cleared: torch.cuda.Event | None = None
        self.streams: set[int] = set()  # those that are known to come after `cleared`
        # Counted after the write is enqueued, so that a copy made in between is known to be old.
        self.writes = 0
        self.copied_writes = 0

    @property
    def is_stale(self) -> bool:
        return self.host is None or self.copied_writes != self.writes

    def copy(self) -> None:
        """Now; the device has been waited for."""
        self.copied_writes = self.writes
        self.host, self.arrives = self.values.cpu(), None

    def copy_behind(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Have the stream copy it, behind what it was given so far."""
        self.copied_writes = self.writes
        if self.host is None or not self.host.is_pinned():
            self.host = torch.empty(self.values.shape, dtype=self.values.dtype, pin_memory=True)
        self.host.copy_(self.values, non_blocking=True)
        self.arrives = stream.record_event()
        return self.arrives

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
