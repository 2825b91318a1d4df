"""How far each CUDA stream has come: a word in pinned memory that the GPU writes after each call.

`cuStreamWriteValue32` is the cheapest thing that a stream can do in order, and nobody waits for it. It goes
through the driver itself, so that this needs no torch. The words outlive a fault of the context.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .flight import STREAMS

_PORTABLE_AND_MAPPED = 3
_PAGE = 4096


class StreamMarkers:
    """One word for each stream. Made on a thread that has a CUDA context."""

    def __init__(self) -> None:
        cuda = ctypes.CDLL("libcuda.so.1")
        host, device = ctypes.c_void_p(), ctypes.c_uint64()
        _check("cuMemHostAlloc", cuda.cuMemHostAlloc(ctypes.byref(host), _PAGE, _PORTABLE_AND_MAPPED))
        _check("cuMemHostGetDevicePointer", cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(device), host, 0))
        ctypes.memset(host, 0, _PAGE)
        assert host.value is not None
        self._words = (ctypes.c_uint32 * STREAMS).from_address(host.value)
        self._address = device.value
        self._write: Any = getattr(cuda, "cuStreamWriteValue32_v2", cuda.cuStreamWriteValue32)
        self._write.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        self._write.restype = ctypes.c_int
        self._places: dict[int, int] = {}
        self._marked: dict[int, int] = {}  # the newest call of each stream

    def mark(self, stream: int, index: int) -> int:
        """Have the stream say that it has come past this call; the stream's place, counted from 1."""
        place = self._places.get(stream)
        if place is None:
            if len(self._places) == STREAMS:
                return 0
            place = self._places[stream] = len(self._places)
        # After a fault this fails, and the program hears of the fault from its own next call.
        self._write(stream, self._address + 4 * place, (index + 1) & 0xFFFFFFFF, 0)
        self._marked[stream] = index + 1
        return place + 1

    def completed(self) -> list[tuple[int, int]]:
        """Handle and newest completed call + 1 of each stream, by place."""
        found = []
        for stream, place in list(self._places.items()):
            newest = self._marked.get(stream, 0)
            behind = (newest - self._words[place]) & 0xFFFFFFFF
            found.append((stream, newest - behind if behind <= newest else 0))
        return found


def _check(what: str, status: int) -> None:
    if status:
        raise OSError(f"{what} failed with CUDA error {status}")
