"""How far each CUDA stream has come: a word in pinned memory that the GPU writes after each call.

`cuStreamWriteValue32` is the cheapest thing that a stream can do in order, and nobody waits for it. It goes
through the driver itself, so that this needs no torch. The words outlive a fault of the context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .flight import STREAMS

_PORTABLE_AND_MAPPED = 3
_PAGE = 4096


class StreamMarkers:
    """One word for each stream. Begins with the first mark, on a thread that has a CUDA context."""

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure
        self._words: Any = None
        self._address = 0
        self._write: Any = None
        self._is_broken = False
        self._places: dict[int, int] = {}
        self._marked: dict[int, int] = {}  # the newest call of each stream

    def _begin(self) -> None:
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
            host, device = ctypes.c_void_p(), ctypes.c_uint64()
            _check("cuMemHostAlloc", cuda.cuMemHostAlloc(ctypes.byref(host), _PAGE, _PORTABLE_AND_MAPPED))
            found = cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(device), host, 0)
            _check("cuMemHostGetDevicePointer", found)
            ctypes.memset(host, 0, _PAGE)
            write: Any = getattr(cuda, "cuStreamWriteValue32_v2", None) or cuda.cuStreamWriteValue32
        except (OSError, AttributeError) as error:
            self._is_broken = True
            self._on_failure(str(error))
            return
        write.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        write.restype = ctypes.c_int
        assert host.value is not None
        self._words = (ctypes.c_uint32 * STREAMS).from_address(host.value)
        self._address, self._write = device.value, write

    def mark(self, stream: int, index: int) -> int:
        """Have the stream say that it has come past this call; the stream's place, counted from 1."""
        place = self._places.get(stream)
        if place is None:
            if self._words is None and not self._is_broken:
                self._begin()
            if self._is_broken or len(self._places) == STREAMS:
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
