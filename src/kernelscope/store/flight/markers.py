"""How far each CUDA stream has come: a word in pinned memory that the GPU writes after each call.

Inside a CUDA graph, each launch can have a word of its own.

`cuStreamWriteValue32` is the cheapest thing that a stream can do in order, and nothing waits for it. It goes
through the driver itself, so that this needs no torch. The words outlive a fault of the context.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .recorder import STREAMS

_PORTABLE_AND_MAPPED = 3
_PAGE = 4096
_LAUNCHES = 4096  # of one graph that are marked; what comes later is not
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


class GraphProgress:
    """How far a replay of one CUDA graph has come: a word for each of its launches.

    A stream's own marker says only that a whole replay is over. These words are written by nodes captured
    with the graph: the first sets all of them to 0, and each launch is followed by one that sets its word to
    1. Such a node takes the GPU some 3 µs, so there are none unless they are asked for. Made before the
    capture begins, inside which memory cannot be pinned.
    """

    def __init__(self, driver: Callable[[], Any] = _driver) -> None:
        """Raises OSError where the driver cannot do it."""
        try:
            cuda = driver()
            host, device = ctypes.c_void_p(), ctypes.c_uint64()
            size = 4 * _LAUNCHES  # never freed: captured nodes write there as long as the graph lives
            _check("cuMemHostAlloc", cuda.cuMemHostAlloc(ctypes.byref(host), size, _PORTABLE_AND_MAPPED))
            found = cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(device), host, 0)
            _check("cuMemHostGetDevicePointer", found)
            self._write: Any = getattr(cuda, "cuStreamWriteValue32_v2", None) or cuda.cuStreamWriteValue32
            self._fill: Any = cuda.cuMemsetD32Async
        except AttributeError as error:
            raise OSError(str(error)) from None
        self._write.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        self._fill.argtypes = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p)
        assert host.value is not None
        ctypes.memset(host, 0, size)
        self._words = (ctypes.c_uint32 * _LAUNCHES).from_address(host.value)
        self._address, self._marked = device.value, 0

    def begin(self, stream: int) -> None:
        """First thing in the capture, on its stream."""
        _check("cuMemsetD32Async", self._fill(self._address, 0, _LAUNCHES, stream))

    def mark(self, stream: int) -> int:
        """After a launch on this stream; the number of its word, -1 where there is none."""
        if self._marked == _LAUNCHES:
            return -1
        number, self._marked = self._marked, self._marked + 1
        status = self._write(stream, self._address + 4 * number, 1, 0)
        _check("cuStreamWriteValue32", status)
        return number

    def completed(self, places: Sequence[int]) -> int:
        """How many of these launches are over, up to the first that is not; one without a word counts."""
        for count, place in enumerate(places):
            if place >= 0 and not self._words[place]:
                return count
        return len(places)


def _check(what: str, status: int) -> None:
    if status:
        raise OSError(f"{what} failed with CUDA error {status}")
