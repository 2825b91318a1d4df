"""Words that streams write, with several threads, and with what stands in for the driver of a GPU."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.between_steps import acting_at_step

from kernelscope.events import CapturedGraph
from kernelscope.store.flight import markers
from kernelscope.store.flight.markers import GraphProgress, StreamMarkers
from kernelscope.store.flight.recorder import STREAMS


class Driver:
    """The three functions of libcuda, for a device that shares the host's memory and is always done."""

    def __init__(self) -> None:
        self.pages: list[Any] = []

    def __call__(self) -> Any:
        def alloc(where: Any, size: int, flags: int) -> int:
            self.pages.append(ctypes.create_string_buffer(size))
            where._obj.value = ctypes.addressof(self.pages[-1])
            return 0

        def pointer(where: Any, host: ctypes.c_void_p, flags: int) -> int:
            where._obj.value = host.value
            return 0

        def write(stream: int, address: int, value: int, flags: int) -> int:
            ctypes.c_uint32.from_address(address).value = value
            return 0

        found = type("libcuda", (), {})()
        found.cuMemHostAlloc, found.cuMemHostGetDevicePointer_v2 = alloc, pointer
        found.cuStreamWriteValue32_v2 = write
        return found


def no_failure(why: str) -> None:
    raise AssertionError(why)


def test_two_threads_with_new_streams_have_two_places() -> None:
    """At each step that one thread makes, the other one marks its first call."""
    for number in itertools.count():
        driver = Driver()
        marked = StreamMarkers(no_failure, driver)
        places: dict[int, int] = {}
        other = threading.Thread(
            target=lambda marked=marked, places=places: places.update({0xB: marked.mark(0xB, 20)})
        )

        def meanwhile(other: threading.Thread = other) -> None:
            other.start()
            other.join(0.01)  # it may have to wait for the first

        with acting_at_step(markers, number, meanwhile):
            places[0xA] = marked.mark(0xA, 10)
        if other.ident is None:  # marking takes fewer steps than that
            break
        other.join()
        assert sorted(places.values()) == [1, 2], number
        assert len(driver.pages) == 1, number
        completed = marked.completed()
        assert {stream: completed[place - 1] for stream, place in places.items()} == {
            0xA: (0xA, 11), 0xB: (0xB, 21)
        }  # fmt: skip
    assert number > 20


def test_many_threads_and_streams() -> None:
    driver, places = Driver(), []
    marked = StreamMarkers(no_failure, driver)
    start = threading.Barrier(16, timeout=60)

    def work(thread: int) -> None:
        start.wait()
        for number in range(8):
            stream = 1000 + (thread + number) % STREAMS
            places.append((stream, marked.mark(stream, number)))

    threads = [threading.Thread(target=work, args=(5 * n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(driver.pages) == 1
    assert len(set(places)) == len({stream for stream, _ in places}) == len({place for _, place in places})


def test_a_stream_too_many_has_no_place() -> None:
    marked = StreamMarkers(no_failure, Driver())
    assert [marked.mark(stream, 0) for stream in range(STREAMS + 2)] == [*range(1, STREAMS + 1), 0, 0]


def test_the_newest_mark_was_noted_before_an_older_one() -> None:
    """Two threads on one stream: the word is ahead of what was noted last."""
    marked = StreamMarkers(no_failure, Driver())
    marked.mark(7, (1 << 33) + 5)
    marked.marked[7] = (1 << 33) + 4
    assert marked.completed() == [(7, (1 << 33) + 6)]


def test_a_driver_that_refuses_is_asked_once() -> None:
    said: list[str] = []
    driver = Driver()

    def refusing() -> Any:
        found = driver()
        found.cuMemHostAlloc = lambda where, size, flags: 2
        return found

    marked = StreamMarkers(said.append, refusing)
    assert [marked.mark(1, 0), marked.mark(2, 1)] == [0, 0]
    assert said == ["cuMemHostAlloc failed with CUDA error 2"]


class StoppingDriver(Driver):
    """Does what was captured only when it is asked to, up to where it faults."""

    def __init__(self) -> None:
        super().__init__()
        self.captured: list[Callable[[], None]] = []

    def __call__(self) -> Any:
        found = super().__call__()

        def write(stream: int, address: int, value: int, flags: int) -> int:
            self.captured.append(lambda: setattr(ctypes.c_uint32.from_address(address), "value", value))
            return 0

        def fill(address: int, value: int, count: int, stream: int) -> int:
            self.captured.append(lambda: ctypes.memset(address, value, 4 * count))
            return 0

        found.cuStreamWriteValue32_v2, found.cuMemsetD32Async = write, fill
        return found


def test_a_replay_that_stops_says_at_which_launch() -> None:
    driver = StoppingDriver()
    progress = GraphProgress(driver)
    progress.begin(7)
    places = [progress.mark(7), -1, progress.mark(8), progress.mark(7)]  # one is not marked, one runs beside
    for node in driver.captured:  # a whole replay, and then one that comes to its second mark
        node()
    assert progress.completed(places) == len(places)
    for node in driver.captured[:2]:
        node()
    graph = CapturedGraph((), (), 0, progress, tuple(places))
    assert progress.completed(graph.places) == 2
    driver.captured[3]()  # the other stream is further: the first launch that is not over counts
    assert progress.completed(places) == 2


def test_a_driver_that_cannot_mark_is_a_sentence() -> None:
    with pytest.raises(OSError, match="cuMemsetD32Async"):
        GraphProgress(Driver())
