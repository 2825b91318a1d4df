"""Threads that compile, launch, open and close recordings at the same time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.integration.recording.loaded_wrappers import wrapper_codes
from torch._inductor.output_code import CompiledFxGraph

import kernelscope
from kernelscope.config import Config
from kernelscope.events import Finding
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.python_wrappers import wrapper_launches
from kernelscope.recording import Recording, busy_threads

Program = Callable[[torch.Tensor], torch.Tensor]


def test_compiled_calls_of_all_threads_are_recorded_once(tiny: Program) -> None:
    def work(_: int) -> None:
        for _ in range(50):
            tiny(torch.ones(8))

    with kernelscope.record(values="hash") as run, ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(run) == 400
    assert [c.index for c in run] == list(range(400))
    assert len({c.thread for c in run}) > 1
    assert len({c.graph_call for c in run}) == 400
    assert len(run.kernels) == 1
    assert len({tuple(c.post_hashes.values()) for c in run}) == 1
    assert not run.findings


def test_calls_read_while_threads_record_are_complete_afterwards(tiny: Program) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            tiny(torch.ones(8))

    with kernelscope.record() as run:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert len(run.calls) <= len(run)
        stop.set()
        for thread in threads:
            thread.join()
    assert [c.index for c in run.calls] == list(range(len(run)))


def test_indices_are_places_whoever_was_faster(tiny: Program) -> None:
    for _ in range(40):
        start = threading.Barrier(4, timeout=60)

        def work(start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(3):
                tiny(torch.ones(8))

        with kernelscope.record() as run, ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(work)
        assert [c.index for c in run.calls] == list(range(12))


@pytest.mark.parametrize("values", ["off", "hash"])
def test_recordings_come_and_go_while_threads_work(tiny: Program, values: str) -> None:
    x = torch.ones(8)
    expected, before = tiny(x), wrapper_codes()
    done = threading.Event()

    def work() -> int:
        count = 0
        while not done.is_set():
            assert torch.equal(tiny(x), expected)
            count += 1
        return count

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as pool:
            workers = [pool.submit(work) for _ in range(3)]
            try:
                for _ in range(100):
                    with kernelscope.record(values=values) as run:
                        time.sleep(0.0005)
                    assert {c.kernel_name for c in run.calls} <= {"cpp_fused_add_sin_0"}
                    assert [c.index for c in run.calls] == list(range(len(run.calls)))
            finally:
                done.set()  # or the pool would wait for its workers forever
            assert all(worker.result() for worker in workers)
    finally:
        done.set()
        sys.setswitchinterval(interval)
    assert all(function.__code__ is code for function, code in before.items())


def test_a_thread_that_comes_while_the_first_launch_becomes_known(
    tiny: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not write notes for what is known by half: their numbers would be missing."""
    x, know, others = torch.ones(8), wrapper_launches.returned_addresses, []

    def know_slowly(*args: Any) -> Any:
        monkeypatch.undo()
        others.append(threading.Thread(target=tiny, args=(x,)))
        others[0].start()
        others[0].join()
        return know(*args)

    with kernelscope.record() as run:
        monkeypatch.setattr(wrapper_launches, "returned_addresses", know_slowly)
        for _ in range(3):
            tiny(x)
        assert isinstance(run.entries[-1], bytes), "it was noted"
    assert len(others) == 1
    assert len(run.calls) == 4


def test_a_recording_on_each_of_two_threads(tiny: Program, leftovers: Callable[[], list[str]]) -> None:
    both_open = threading.Barrier(2, timeout=60)

    def work(name: str) -> kernelscope.Run:
        with kernelscope.record(ops="all", values="hash") as run:
            both_open.wait()
            getattr(torch.ones(3), name)()
            tiny(torch.ones(8))
            both_open.wait()
        return run

    with ThreadPoolExecutor(2) as pool:
        sin, cos = pool.map(work, ["sin", "cos"])
    for run, own in ((sin, "aten.sin.default"), (cos, "aten.cos.default")):
        assert len(run.select(kind="cpp")) == 2
        assert len(run.select(kernel=own)) == 1
        assert not run.findings
    assert not leftovers()


def test_opening_and_closing_on_many_threads_at_once(
    tiny: Program, leftovers: Callable[[], list[str]]
) -> None:
    expected = tiny(torch.ones(8))

    def work(_: int) -> int:
        with kernelscope.record(values="hash", ops="all") as run:
            assert torch.equal(tiny(torch.ones(8)), expected)
        # Others are between two recordings of their own, on threads that this one cannot observe.
        assert {finding.kind for finding in run.findings} <= {"unseen-operators"}
        return len({c.thread for c in run.select(kind="op")})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert not BUS.listeners
    assert BUS.storages.count == 0
    assert not leftovers()


def test_a_note_that_was_on_its_way_when_the_recording_closed(
    tiny: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread has looked up where its note goes, and makes it when the recording has closed."""
    on_its_way, closed, clock = threading.Event(), threading.Event(), time.monotonic_ns
    late = threading.Thread(target=tiny, args=(torch.ones(8),))

    def monotonic_ns() -> int:
        if threading.current_thread() is late:  # the note's own statement asks for the time
            on_its_way.set()
            assert closed.wait(60)
        return clock()

    with kernelscope.record() as run:
        for _ in range(3):
            tiny(torch.ones(8))
        monkeypatch.setattr(time, "monotonic_ns", monotonic_ns)
        late.start()
        assert on_its_way.wait(60)
    seen, printed = run.calls, str(run)
    closed.set()
    late.join()
    assert (run.calls, len(run), str(run)) == (seen, 3, printed)
    assert [c.index for c in run.calls] == [0, 1, 2]


class SlowObserver:
    def __init__(self) -> None:
        self.looks, self.has_looked = threading.Event(), False

    def before(self, call: Any, launch: Any) -> None: ...

    def after(self, call: Any, launch: Any) -> None:
        self.looks.set()
        time.sleep(0.1)
        self.has_looked = True


def test_closing_waits_for_a_thread_that_is_looking(tiny: Program) -> None:
    """Else it would write into a run that has closed."""
    recording, observer = Recording(Config(values="hash")), SlowObserver()
    recording.observers.append(observer)
    recording.open()
    thread = threading.Thread(target=tiny, args=(torch.ones(8),))
    thread.start()
    assert observer.looks.wait(60)
    recording.close()
    assert observer.has_looked
    thread.join()


def test_closing_beside_an_observer_that_blocks_is_reported(
    tiny: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_threads, "PATIENCE", 0.02)  # the observer takes 0.1 s
    recording, observer = Recording(Config()), SlowObserver()
    recording.observers.append(observer)
    recording.open()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(tiny, torch.ones(8))
        assert observer.looks.wait(60)
        recording.close()
    assert [f.kind for f in recording.run.findings] == ["closed-while-busy"]


def test_a_launch_that_comes_to_a_closed_recording(tiny: Program) -> None:
    """Another thread has found the recording among the listeners before it left."""
    recording = Recording(Config(values="hash"))
    recording.open()
    tiny(torch.ones(8))
    recording.close()
    run = recording.run
    closed = repr((run.calls, run.graph_calls, run.marks, run.findings))
    BUS.listeners = (recording,)
    try:
        BUS.graph_call(run.graphs[0], "forward", 0)
        BUS.mark("range", "late")
        BUS.finding(Finding("late", "finding"))
        point = LaunchPoint(run.calls[0].site, is_leaf=True)
        assert BUS.run(point, [], lambda: 7, (), {}) == 7
    finally:
        BUS.listeners = ()
    assert len(run) == 1
    assert repr((run.calls, run.graph_calls, run.marks, run.findings)) == closed


def test_a_call_that_looked_up_its_method_before_the_recording_closed(
    tiny: Program, leftovers: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may be between finding the hooked method and calling it."""
    with kernelscope.record() as run:
        hooked = CompiledFxGraph.__call__
    with monkeypatch.context() as patch:
        patch.setattr(CompiledFxGraph, "__call__", hooked)
        tiny(torch.ones(8))
    assert len(run) == 0
    assert not leftovers()


def test_all_operators_closed_on_another_thread(tiny: Program) -> None:
    """Torch keeps dispatch modes per thread: closing elsewhere is an error that says so."""
    recording = Recording(Config(ops="all"))
    closed = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(recording.open).result()
        with pytest.raises(RuntimeError, match="another thread"):
            recording.close()
        closed.set()
    assert not BUS.listeners
    with kernelscope.record(ops="all") as run:
        torch.ones(3).sin()
    assert len(run) == 2


def test_compiled_graphs_recording_may_be_closed_on_another_thread(
    tiny: Program, leftovers: Callable[[], list[str]]
) -> None:
    recording = Recording(Config())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(recording.open).result()
        tiny(torch.ones(8))
    recording.close()
    assert len(recording.run) == 1
    assert not leftovers()


def test_backward_from_another_thread(tiny: Program) -> None:
    x = torch.ones(8, requires_grad=True)
    with kernelscope.record() as run:
        loss = tiny(x).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    assert [c.phase for c in run] == ["forward", "backward"]
    assert run.calls[0].thread != run.calls[1].thread
