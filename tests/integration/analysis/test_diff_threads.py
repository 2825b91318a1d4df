"""`diff` on runs of real programs whose threads compute at the same time, in another order in each run."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope import Divergence, Run

REPEATS = 12
Work = Callable[[torch.Tensor], torch.Tensor]
Recorder = Callable[[Callable[[], Any]], Run]


def weights(number: int, *shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).mul(0.37 + number).sin()


def eager(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weights(1, 16, 16)) + x.cos()


@pytest.fixture(scope="module")
def models() -> list[Work]:
    """Eager and compiled code, compiled before the threads begin."""

    def small(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + 1).softmax(-1)

    def large(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weights(2, 16, 16)).sum(-1, keepdim=True) + x.tanh()

    torch._dynamo.reset()
    compiled = [torch.compile(small), torch.compile(large)]
    for model in compiled:
        model(torch.ones(4, 16))
    return [compiled[0], eager, compiled[1]]


def wait() -> None:
    time.sleep(random.random() * 0.002)


def together(works: list[Callable[[int], None]], rounds: int = 5) -> None:
    """Each on a thread of its own, all of them let go at once in every round."""
    barrier = threading.Barrier(len(works))

    def rounds_of(work: Callable[[int], None]) -> None:
        for n in range(rounds):
            barrier.wait()
            wait()
            work(n)

    threads = [threading.Thread(target=rounds_of, args=(work,)) for work in works]
    for thread in random.sample(threads, len(threads)):
        thread.start()
    for thread in threads:
        thread.join()


class Program:
    """What the threads of one execution do; `fault` makes one of them compute something else."""

    def __init__(self, models: list[Work], fault: str = "") -> None:
        self.models, self.fault = models, fault

    def serve(self, threads: int) -> None:
        """Each thread has its model and goes on with its own result."""
        states = [weights(10 + n, 4, 16) for n in range(threads)]

        def work(thread: int, n: int) -> None:
            if self.fault and (thread, n) == (threads - 1, 3):
                states[thread].view(-1).numpy()[5] += 0.125  # not recorded
            states[thread] = self.models[thread % len(self.models)](states[thread])

        together([lambda n, thread=thread: work(thread, n) for thread in range(threads)])  # type: ignore[misc]

    def twins(self, threads: int) -> None:
        """All threads run the same model, on other values."""
        states = [weights(20 + n, 4, 16) for n in range(threads)]

        def work(thread: int, n: int) -> None:
            number = 1.5 if self.fault and (thread, n) == (1, 2) else 1.25
            states[thread] = eager(torch.mul(states[thread], number))

        together([lambda n, thread=thread: work(thread, n) for thread in range(threads)])  # type: ignore[misc]

    def pool(self, threads: int) -> None:
        """Whichever thread is free takes the next piece of work."""

        def work(n: int) -> torch.Tensor:
            wait()
            x = self.models[0](weights(30 + n, 4, 16))
            wait()
            return self.models[2](x.clamp(max=0.05 if self.fault and n == 6 else 0.06))

        with ThreadPoolExecutor(threads) as pool:
            torch.stack(list(pool.map(work, range(10)))).sum()

    def hand_over(self, threads: int) -> None:
        """Threads load batches, the main thread computes with them."""
        batches: list[queue.Queue[torch.Tensor]] = [queue.Queue(2) for _ in range(threads)]

        def load(thread: int) -> None:
            for n in range(4):
                wait()
                number = 0.75 if self.fault and (thread, n) == (0, 2) else 0.5
                batches[thread].put(weights(40 + 4 * thread + n, 4, 16).clamp(min=-number))

        loaders = [threading.Thread(target=load, args=(thread,)) for thread in range(threads)]
        for loader in loaders:
            loader.start()
        x = weights(50, 4, 16)
        for n in range(4 * threads):
            wait()
            x = self.models[0](x + batches[n % threads].get())
        for loader in loaders:
            loader.join()


@pytest.fixture(params=["memory", "disk"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    numbers = iter(range(1000))

    def recorded(program: Callable[[], Any]) -> Run:
        where = {"path": tmp_path / f"{next(numbers)}.kscope"} if request.param == "disk" else {}
        with kernelscope.record(values="hash", ops="all", **where) as run:  # type: ignore[arg-type]
            program()
        if not where:
            return run
        run.close()
        return kernelscope.load(where["path"])

    return recorded


def order_of(run: Run) -> tuple[int, ...]:
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(call.thread, len(numbers)) for call in run.calls)


CASES = [("serve", 2), ("serve", 4), ("twins", 3), ("pool", 3), ("hand_over", 2)]


@pytest.mark.parametrize(("name", "threads"), CASES)
def test_another_order_is_no_divergence(
    models: list[Work], record: Recorder, name: str, threads: int
) -> None:
    def once() -> Run:
        return record(lambda: getattr(Program(models), name)(threads))

    first = once()
    orders = {order_of(first)}
    for _ in range(REPEATS):
        with closing(once()) as again:
            found = kernelscope.diff(first, again)
            assert not found, str(found)
            assert found.compared.pairs == len(first)
            orders.add(order_of(again))
    assert len(orders) > REPEATS // 2  # the threads did take turns in other ways


def named(found: Divergence, run: Run) -> str:
    index = found.index_b if found.index_b is not None else found.index_a
    assert index is not None
    return run.calls[index].kernel_name


@pytest.mark.parametrize(
    ("name", "threads", "kernel", "thread"),
    [
        ("serve", 2, "aten.mm.default", True),
        ("twins", 3, "aten.mul.Tensor", True),
        ("pool", 3, "aten.clamp.default", True),
        ("hand_over", 2, "aten.clamp.default", True),
    ],
)
def test_a_difference_in_one_thread(
    models: list[Work],
    record: Recorder,
    name: str,
    threads: int,
    kernel: str,
    thread: bool,
) -> None:
    for _ in range(3):
        a = record(lambda: getattr(Program(models), name)(threads))
        b = record(lambda: getattr(Program(models, "fault"), name)(threads))
        found = kernelscope.diff(a, b)
        assert found.verdict == "inputs-differ", str(found)
        assert named(found, b) == kernel, str(found)
        assert found.thread.startswith("thread ") is thread, str(found)
        assert found.thread_b == b.calls[found.index_b or 0].thread
        assert f", {found.thread}\n" in str(found)


def test_a_thread_that_only_one_run_has(models: list[Work], record: Recorder) -> None:
    def start(*, extra: bool) -> None:
        over = threading.Event()

        def more() -> None:
            weights(60, 3).tan()
            over.wait()  # the number of a thread that has ended may be given to the next one

        thread = threading.Thread(target=more)
        if extra:
            thread.start()
        Program(models).serve(2)
        over.set()
        if extra:
            thread.join()

    a, b = record(lambda: start(extra=False)), record(lambda: start(extra=True))
    found = kernelscope.diff(a, b)
    assert found.verdict == "extra-call", str(found)
    assert any(note.startswith("only the second run has thread ") for note in found.notes), found.notes
    assert "all values that can be compared agree" in found.notes
