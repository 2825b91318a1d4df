"""`diff` on runs of real programs whose threads take turns, in another order in each run."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.turns import TIMEOUT, Turns, joined

import kernelscope
from kernelscope import Divergence, Run

REPEATS = 6
Work = Callable[[torch.Tensor], torch.Tensor]
Recorder = Callable[[Callable[[], Any]], Run]


def weights(number: int, *shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).mul(0.37 + number).sin()


def eager(x: torch.Tensor, turn: Callable[[], None]) -> torch.Tensor:
    product = x @ weights(1, 16, 16)
    turn()
    positive = torch.relu(product)
    turn()
    return positive + x.cos()


@pytest.fixture(scope="module")
def models() -> list[Work]:
    """Compiled before the threads begin."""

    def small(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + 1).softmax(-1)

    def large(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weights(2, 16, 16)).sum(-1, keepdim=True) + x.tanh()

    torch._dynamo.reset()
    compiled = [torch.compile(small), torch.compile(large)]
    for model in compiled:
        model(torch.ones(4, 16))
    return compiled


class Program:
    """What the threads of one execution do; `fault` makes one of them compute something else.

    The seed decides in which order they take turns; without one, they compute at the same time.
    """

    def __init__(self, models: list[Work], seed: int | None, fault: str = "") -> None:
        self.models, self.seed, self.fault = models, seed, fault

    def serve(self, threads: int) -> None:
        """Each thread has its model and goes on with its own result."""
        turns, states = Turns(self.seed, threads), [weights(10 + n, 4, 16) for n in range(threads)]

        def work(thread: int, turn: Callable[[], None]) -> None:
            for n in range(5):
                turn()
                if self.fault and (thread, n) == (threads - 1, 3):
                    states[thread].view(-1).numpy()[5] += 0.125  # not recorded
                if thread % 3 == 1:
                    states[thread] = eager(states[thread], turn)
                else:
                    states[thread] = self.models[thread % 3 // 2](states[thread])

        turns.together(work)

    def twins(self, threads: int) -> None:
        """All threads run the same model, on other values."""
        turns, states = Turns(self.seed, threads), [weights(20 + n, 4, 16) for n in range(threads)]

        def work(thread: int, turn: Callable[[], None]) -> None:
            for n in range(5):
                turn()
                number = 1.5 if self.fault and (thread, n) == (1, 2) else 1.25
                product = torch.mul(states[thread], number)
                turn()
                states[thread] = eager(product, turn)

        turns.together(work)

    def pool(self, threads: int) -> None:
        """Whichever thread is free takes the next piece of work."""
        turns = Turns(self.seed, threads, in_all=10)

        def work(n: int) -> torch.Tensor:
            with turns.taken_by(n) as turn:
                x = self.models[0](weights(30 + n, 4, 16))
                turn()
                x = x.clamp(max=0.05 if self.fault and n == 6 else 0.06)
                turn()
                return self.models[1](x)

        with ThreadPoolExecutor(threads) as pool:
            torch.stack(list(pool.map(work, range(10), timeout=TIMEOUT))).sum()

    def hand_over(self, threads: int) -> None:
        """Threads load batches, the main thread computes with them."""
        batches: list[queue.Queue[torch.Tensor]] = [queue.Queue(2) for _ in range(threads)]
        turns = Turns(self.seed, threads + 1)

        def load(thread: int) -> None:
            with turns.taken_by(thread) as turn:
                for n in range(4):
                    while batches[thread].full():
                        turn()
                    number = 0.75 if self.fault and (thread, n) == (0, 2) else 0.5
                    batch = weights(40 + 4 * thread + n, 4, 16)
                    turn()
                    batches[thread].put(batch.clamp(min=-number), timeout=TIMEOUT)

        loaders = [threading.Thread(target=load, args=(thread,)) for thread in range(threads)]
        for loader in loaders:
            loader.start()
        x = weights(50, 4, 16)
        with turns.taken_by(threads) as turn:
            for n in range(4 * threads):
                while batches[n % threads].empty():
                    turn()
                x = self.models[0](x + batches[n % threads].get(timeout=TIMEOUT))
        joined(loaders)


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
    def once(seed: int | None) -> Run:
        return record(lambda: getattr(Program(models, seed), name)(threads))

    first = once(0)
    orders = {order_of(first)}
    for seed in (*range(1, REPEATS), None):
        with closing(once(seed)) as again:
            found = kernelscope.diff(first, again)
            assert not found, str(found)
            assert found.compared.pairs == len(first)
            if seed is not None:
                orders.add(order_of(again))
    assert len(orders) == REPEATS  # the turns were others each time


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
    for seed in range(3):
        a = record(lambda: getattr(Program(models, seed), name)(threads))  # noqa: B023
        b = record(lambda: getattr(Program(models, seed + 3, "fault"), name)(threads))  # noqa: B023
        found = kernelscope.diff(a, b)
        assert found.verdict == "inputs-differ", str(found)
        assert named(found, b) == kernel, str(found)
        assert found.thread.startswith("thread ") is thread, str(found)
        assert found.thread_b == b.calls[found.index_b or 0].thread
        assert f", {found.thread}\n" in str(found)


def test_a_thread_that_only_one_run_has(models: list[Work], record: Recorder) -> None:
    def start(*, extra: bool) -> None:
        ready, over = threading.Event(), threading.Event()

        def more() -> None:
            weights(60, 3).tan()
            ready.set()
            over.wait(TIMEOUT)  # the number of a thread that has ended may be given to the next one

        thread = threading.Thread(target=more)
        if extra:
            thread.start()
            assert ready.wait(TIMEOUT)
        Program(models, seed=0).serve(2)
        over.set()
        if extra:
            joined([thread])

    a, b = record(lambda: start(extra=False)), record(lambda: start(extra=True))
    found = kernelscope.diff(a, b)
    assert found.verdict == "extra-call", str(found)
    assert any(note.startswith("only the second run has thread ") for note in found.notes), found.notes
    assert "all values that can be compared agree" in found.notes
