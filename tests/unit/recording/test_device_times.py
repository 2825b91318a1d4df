"""Times on the device: a trace joined to calls, and events, also with several threads. Needs no GPU."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.between_steps import acting_at_step

from kernelscope.recording.times import device_times
from kernelscope.recording.times.device_times import (
    PREFIX,
    DeviceEvent,
    EventTimes,
    HostEvent,
    TracedTimes,
    join,
)


def a_range(call: int, start: int, end: int, thread: int = 1) -> HostEvent:
    return HostEvent(1_000_000 + call, thread, start, end, f"{PREFIX}{call}")


def a_launch(number: int, at: int, thread: int = 1) -> HostEvent:
    return HostEvent(number, thread, at, at + 1, "aten::mm")


# -- joining -------------------------------------------------------------------------------------------


def nested(count: int) -> list[HostEvent]:
    """One call around all others, as a custom operator with many kernels inside, or as many around one."""
    inner = [a_range(call, 10 * call, 10 * call + 5) for call in range(1, count)]
    return [a_range(0, 0, 10 * count), *inner]


def in_each_other(count: int) -> list[HostEvent]:
    return [a_range(call, call, 10 * count - call) for call in range(count)]


@pytest.mark.parametrize("shape", [nested, in_each_other])
def test_a_full_trace_is_joined_in_no_time(shape: Callable[[int], list[HostEvent]]) -> None:
    """A trace of up to 20,000 calls is read within a launch, and the program waits for it."""
    count = 8_000
    host = [*shape(count), *(a_launch(n, 10 * n + 7) for n in range(count))]  # between two inner calls
    device = [DeviceEvent(n, 1) for n in range(count)]
    began = time.thread_time()  # not what others on this machine use
    times = join(host, device)
    assert time.thread_time() - began < 2  # it was over ten seconds
    assert sum(times.values()) == count


def test_the_innermost_call_gets_the_time() -> None:
    host = [
        a_range(1, 0, 100), a_range(2, 10, 50), a_range(3, 10, 20), a_range(4, 60, 90), a_range(5, 0, 100, 2),
        a_launch(11, 15), a_launch(12, 30), a_launch(13, 55), a_launch(14, 60), a_launch(15, 100),
        a_launch(16, 101), a_launch(17, 15, 2), a_launch(18, 15, 3),
    ]  # fmt: skip
    device = [DeviceEvent(number, 1 << number) for number in (18, 17, 16, 15, 14, 13, 12, 11, 99)]
    assert join(host, device) == {
        3: 1 << 11, 2: 1 << 12, 1: (1 << 13) + (1 << 15), 4: 1 << 14, 5: 1 << 17
    }  # fmt: skip


def test_joined_as_by_looking_at_every_range() -> None:
    draw = random.Random(1)
    for _ in range(50):
        starts = draw.sample(range(300), 40)
        ranges = [a_range(call, s, s + draw.randrange(80), call % 2) for call, s in enumerate(starts)]
        launches = [a_launch(n, draw.randrange(400), n % 3) for n in range(60)]
        device = [DeviceEvent(n, 1 + n) for n in range(60)]
        expected: dict[int, int] = {}
        for launch in launches:
            around = [r for r in ranges if r.thread == launch.thread and r.start <= launch.start <= r.end]
            if around:
                call = int(max(around, key=lambda r: r.start).name.removeprefix(PREFIX))
                expected[call] = expected.get(call, 0) + 1 + launch.correlation
        assert join([*launches, *ranges], device) == expected


# -- events --------------------------------------------------------------------------------------------


class Event:
    """Stands where torch.cuda.Event would: it has completed once the test says so."""

    is_over = True

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        Event.asked += 1
        return Event.is_over

    def elapsed_time(self, other: Event) -> float:
        return 1e-6

    asked = 0


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> type[Event]:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "is_over", True)
    monkeypatch.setattr(Event, "asked", 0)
    return Event


def launch(times: EventTimes, call: int) -> None:
    times.enter(call)
    times.leave()


def test_what_other_threads_add_while_events_are_read(events: type[Event]) -> None:
    for number in itertools.count():
        told: list[int] = []
        times = EventTimes(lambda call, _, told=told: told.append(call))  # type: ignore[misc]
        launched = list(range(3))
        for call in launched:
            launch(times, call)

        def one_more(times: EventTimes = times, launched: list[int] = launched) -> None:
            launched.append(3)
            launch(times, 3)

        with acting_at_step(device_times, number, one_more):
            times.stop()
        times.stop()
        assert sorted(told) == launched, number
        if len(launched) == 3:  # the reader takes fewer steps than that
            break
    assert number > 20


def test_events_that_have_not_completed_are_not_asked_at_each_launch(
    events: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_times, "CALLS_IN_A_TRACE", 10)
    monkeypatch.setattr(events, "is_over", False)
    told: list[int] = []
    times = EventTimes(lambda call, _: told.append(call))
    for call in range(100):
        times.enter(call)
        times.leave()
    assert told == []
    assert events.asked <= 10 + 20 + 30 + 40 + 50 + 60 + 70 + 80 + 90 + 100
    monkeypatch.setattr(events, "is_over", True)
    times.stop()
    assert told == list(range(100))


# -- traces, by torch's real profiler ------------------------------------------------------------------

without_a_gpu = pytest.mark.filterwarnings("ignore:CUDA is not available")


class Traces(TracedTimes):
    """Counts them."""

    count = 0

    def start(self) -> None:
        super().start()
        self.count += 1


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(device_times, "CALLS_IN_A_TRACE", 3)
    times = Traces(lambda call, nanoseconds: None)
    times.start()
    yield times
    times.stop()


@without_a_gpu
def test_a_trace_goes_on_while_another_thread_is_in_a_call(traced: Traces) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def work() -> None:
        traced.enter(100)
        entered.set()
        assert go_on.wait(60)
        traced.leave()

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(60)
    for call in range(8):
        traced.enter(call)
        traced.leave()
    while_it_is_open = traced.count
    go_on.set()
    thread.join()
    when_it_has_ended = traced.count  # only the thread that started a profiler can stop it
    traced.enter(8)
    traced.leave()
    assert (while_it_is_open, when_it_has_ended, traced.count) == (1, 1, 2)


@without_a_gpu
def test_threads_that_fill_a_trace_together(traced: Traces) -> None:
    faults: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for call in range(first, first + 10):
                traced.enter(call)
                traced.leave()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    work(5000)
    for thread in threads:
        thread.join()
    work(6000)
    assert not faults
    assert traced.count > 1
