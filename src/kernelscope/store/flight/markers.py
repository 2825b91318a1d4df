"""How far each CUDA stream has come: a word in pinned memory that the GPU writes after each call.

`cuStreamWriteValue32` is the cheapest thing that a stream can do in order, and nothing waits for it. It goes
through the driver itself, so that this needs no torch. The words outlive a fault of the context.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .recorder import STREAMS

_PORTABLE_AND_MAPPED = 3
_PAGE = 4096
_OTHERS = 1 << 16  # calls that other threads may mark on a stream before one has noted its own
_WORD = 0xFFFFFFFF


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


class StreamMarkers:
    """One word for each stream. Begins with the first mark, on a thread that has a CUDA context."""

    def __init__(self, on_failure: Callable[[str], None], driver: Callable[[], Any] = _driver) -> None:
        self._on_failure = on_failure
        self._driver = driver
        self._lock = threading.Lock()  # for streams that are new
        self._words: Any = None
        self._address = 0
        self._write: Any = None
        self._is_broken = False
        self.driver: tuple[int, int] | None = None  # the addresses of its function and of the words
        self.numbers: dict[int, int] = {}
        self.marked: dict[int, int] = {}  # the newest call of each stream

    def _begin(self) -> None:
        try:
            cuda = self._driver()
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
        with suppress(ctypes.ArgumentError):  # where it is not a function of the driver itself
            self.driver = ctypes.cast(write, ctypes.c_void_p).value or 0, device.value

    def mark(self, stream: int, index: int) -> int:
        """Have the stream say that it has come past this call; the stream's number, counted from 1."""
        number = self.numbers.get(stream)
        if number is None:
            number = self._number_of_new(stream)
            if number < 0:
                return 0
        # After a fault this fails, and the program hears of the fault from its own next call.
        self._write(stream, self._address + 4 * number, (index + 1) & _WORD, 0)
        self.marked[stream] = index + 1
        return number + 1

    def _number_of_new(self, stream: int) -> int:
        """-1 where there is none for it."""
        with self._lock:
            number = self.numbers.get(stream)  # another thread may have been faster
            if number is not None:
                return number
            if self._words is None and not self._is_broken:
                self._begin()
            if self._is_broken or len(self.numbers) == STREAMS:
                return -1
            number = self.numbers[stream] = len(self.numbers)
            return number

    def completed(self) -> list[tuple[int, int]]:
        """Handle and newest completed call + 1 of each stream, by number."""
        found = []
        for stream, number in list(self.numbers.items()):
            newest, word = self.marked.get(stream, 0), self._words[number]
            ahead, behind = (word - newest) & _WORD, (newest - word) & _WORD
            if ahead < _OTHERS:  # a thread that marked an older call noted it last
                found.append((stream, newest + ahead))
            else:
                found.append((stream, newest - behind if behind <= newest else 0))
        return found


def _check(what: str, status: int) -> None:
    if status:
        raise OSError(f"{what} failed with CUDA error {status}")
