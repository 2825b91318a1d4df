"""The first divergence of runs with several threads, on programs of which every value and fault is known.

Each run has an order of its own in which its threads take turns, and other numbers for its threads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.analysis.simulated import Op, replace, simulate

from kernelscope import Run
from kernelscope.analysis.diff.divergence_parts import (
    EXTRA_CALL,
    INPUTS_DIFFER,
    MISSING_CALL,
    NONDETERMINISTIC,
)
from kernelscope.analysis.diff.search import diff

INPUTS = {-1: 11, -2: 22}


@dataclass(frozen=True)
class Program:
    """Tasks, each of which runs on one thread; a task may read what an earlier one computed."""

    tasks: list[list[Op]]
    threads: int
    is_pool: bool  # any thread but the main one takes the next task; otherwise each task has its thread

    def run(self, seed: int, fault: tuple[int, int] | None = None, without: Sequence[int] = ()) -> Run:
        """In an order that respects what reads what; `fault` is an op that computes something else."""
        choose = random.Random(seed)
        numbers = choose.sample(range(1, 10**6), self.threads + 1)
        queues = self._queues(choose, without)
        ops: list[Op] = []
        of_ops: list[int] = []
        written = set(INPUTS)
        while any(queues):
            ready = [
                q for q, queue in enumerate(queues) if queue and set(self._op(queue[0]).reads) <= written
            ]
            thread = choose.choice(ready)
            for _ in range(choose.randint(1, 3)):  # turns are short or long
                if not queues[thread] or not set(self._op(queues[thread][0]).reads) <= written:
                    break
                at = queues[thread].pop(0)
                op = self._op(at)
                ops.append(replace(op, noise=1) if at == fault else op)
                of_ops.append(numbers[thread])
                written.add(op.writes)
        return simulate(ops, INPUTS, 1, of_ops, main_thread=numbers[0])

    def _op(self, at: tuple[int, int]) -> Op:
        return self.tasks[at[0]][at[1]]

    def _queues(self, choose: random.Random, without: Sequence[int]) -> list[list[tuple[int, int]]]:
        queues: list[list[tuple[int, int]]] = [[] for _ in range(self.threads + 1)]
        for number, task in enumerate(self.tasks):
            if number in without:
                continue
            others = range(1, self.threads + 1)
            thread = choose.choice(others) if self.is_pool and number else number % (self.threads + 1)
            queues[thread] += [(number, n) for n in range(len(task))]
        return queues


@st.composite
def programs(draw: st.DrawFn, *, is_pool: bool | None = None) -> Program:
    tasks: list[list[Op]] = []
    threads = draw(st.integers(2, 4))
    pool = draw(st.booleans()) if is_pool is None else is_pool
    count = draw(st.integers(threads + 1, 9)) if pool else threads + 1
    is_alike = draw(st.booleans())  # tasks run the same kernels, on other values
    buffer = 0
    for task in range(count):
        own: list[int] = [-1, -2]
        seen = [op.writes for earlier in tasks for op in earlier]
        ops = []
        for n in range(draw(st.integers(2, 5)) if not is_alike else 4):
            others = seen if seen and draw(st.integers(0, 3)) == 0 else own
            reads = draw(st.sampled_from(own)), draw(st.sampled_from(others))
            name = f"cpp_fused_op{n}" if is_alike else f"cpp_fused_op{task}x{n}"
            ops.append(Op(name, reads, buffer, scalar=task if draw(st.booleans()) else None))
            own.append(buffer)
            buffer += 1
        tasks.append(ops)
    return Program(tasks, threads, pool)


seeds = st.integers(0, 10**6)


@settings(max_examples=300, deadline=None)
@given(programs(), seeds, seeds)
def test_another_order_is_no_divergence(program: Program, one: int, other: int) -> None:
    a, b = program.run(one), program.run(other)
    found = diff(a, b)
    assert not found, str(found)
    assert found.compared.pairs == len(a) == len(b)
    assert found.to_json()["divergence"] is None


@settings(max_examples=300, deadline=None)
@given(programs(), seeds, seeds, st.data())
def test_a_kernel_that_is_not_deterministic(
    program: Program, one: int, other: int, data: st.DataObject
) -> None:
    """It is named, and never a call on another thread that read its result."""
    task = data.draw(st.integers(0, len(program.tasks) - 1))
    fault = task, data.draw(st.integers(0, len(program.tasks[task]) - 1))
    a, b = program.run(one), program.run(other, fault)
    found = diff(a, b)
    assert found.index_b is not None
    assert b.calls[found.index_b].wrapper_names[2] == f"buf{program.tasks[task][fault[1]].writes}", str(found)
    assert found.verdict == NONDETERMINISTIC, str(found)
    assert found.thread_b == b.calls[found.index_b].thread
    assert found.thread in str(found)


@settings(max_examples=100, deadline=None)
@given(programs(is_pool=False), seeds, seeds)
def test_a_thread_that_only_one_run_has(program: Program, one: int, other: int) -> None:
    last = len(program.tasks) - 1  # nothing reads what it computes
    a, b = program.run(one), program.run(other, without=[last])
    count = len(program.tasks[last])
    for first, second, which, verdict in ((a, b, "first", MISSING_CALL), (b, a, "second", EXTRA_CALL)):
        found = diff(first, second)
        assert found.verdict == verdict, str(found)
        calls = "1 call" if count == 1 else f"{count} calls"
        assert any(n.startswith(f"only the {which} run has thread ") and calls in n for n in found.notes)
        assert "all values that can be compared agree" in found.notes


def op(name: str, reads: tuple[int, int], writes: int, **more: int) -> Op:
    return Op(f"cpp_fused_{name}", reads, writes, **more)  # type: ignore[arg-type]


MAIN, WORKER = 7, 8


def run(*calls: tuple[int, Op], main_thread: int = MAIN) -> Run:
    """These ops on these threads."""
    threads, ops = zip(*calls, strict=True)
    return simulate(ops, INPUTS, 1, threads, main_thread)


def test_what_another_thread_computed_differently_is_named_and_not_its_reader() -> None:
    made, read, own = op("made", (-1, -1), 0), op("read", (0, 0), 1), op("own", (-2, -2), 2)
    a = run((MAIN, own), (WORKER, made), (MAIN, read))
    b = run((WORKER, replace(made, noise=1)), (MAIN, own), (MAIN, read))
    found = diff(a, b)
    assert (found.verdict, found.index_a, found.index_b) == (NONDETERMINISTIC, 1, 0)
    assert (found.thread, found.thread_a, found.thread_b) == ("thread 2 of 2", WORKER, WORKER)
    assert [(link.index, link.thread) for link in found.spread.chain] == [(2, "the main thread")]
    assert "call 1 → 2 cpp_fused_read_2 through in_ptr0 on the main thread" in str(found)
    form = found.to_json()["divergence"]
    assert (form["thread"], form["thread_a"], form["thread_b"]) == ("thread 2 of 2", WORKER, WORKER)
    assert form["spread"]["chain"][0]["thread"] == "the main thread"
    assert "thread 2 of 2" in found._repr_html_()


def test_threads_that_race_for_a_buffer() -> None:
    """In one run the reader comes before the second writer, in the other after it."""
    first, second, read = op("a", (-1, -1), 0), op("b", (-2, -2), 0), op("read", (0, 0), 1)
    a = run((MAIN, first), (MAIN, read), (WORKER, second))
    b = run((MAIN, first), (WORKER, second), (MAIN, read))
    found = diff(a, b)
    assert (found.verdict, found.index_a, found.index_b) == (INPUTS_DIFFER, 1, 2)
    assert found.source is not None
    assert "in the first run call 0, cpp_fused_a_0, wrote it on the main thread" in found.source.text
    assert "in the second run call 1, cpp_fused_b_1, wrote it on thread 2 of 2" in found.source.text


def test_calls_that_are_alike_on_threads_of_a_pool() -> None:
    """The faulty call has a twin on another thread, whose result is that of the other run."""
    twin, faulty, reader = op("a", (-1, -1), 0), op("a", (-1, -1), 1), op("b", (1, -2), 2)
    a = run((MAIN, op("m", (-2, -2), 9)), (WORKER, twin), (WORKER, faulty), (WORKER + 1, reader))
    b = run(
        (MAIN, op("m", (-2, -2), 9)),
        (WORKER + 2, replace(faulty, noise=1)),
        (WORKER + 2, reader),
        (WORKER + 3, twin),
    )
    found = diff(a, b)
    assert (found.verdict, found.index_b) == (NONDETERMINISTIC, 1), str(found)


def test_alike_tasks_of_a_pool_that_changed_places() -> None:
    """The faulty call has a twin, and readers of the two are paired with one another."""
    far, faulty, twin = op("far", (-1, -1), 3), op("a", (-1, -2), 5), op("a", (-1, -2), 17)
    of_faulty, of_twin = op("b", (5, 3), 6), op("b", (17, 6), 18)
    a = run((MAIN, far), *((WORKER, each) for each in (faulty, of_faulty, twin, of_twin)))
    b = run(
        (MAIN, far),
        (WORKER + 2, twin),
        (WORKER + 3, replace(faulty, noise=1)),
        (WORKER + 3, of_faulty),
        (WORKER + 2, of_twin),
    )
    found = diff(a, b)
    assert (found.verdict, found.index_b) == (NONDETERMINISTIC, 2), str(found)


def test_a_kernel_with_other_arguments_is_a_divergence() -> None:
    """Their values cannot be compared, and that is no reason to say that the runs agree."""
    a = run((MAIN, op("a", (-1, -1), 0)), (WORKER, op("b", (-2, -2), 1)))
    b = run((MAIN, op("a", (-1, -2), 0, scalar=3)), (WORKER, op("b", (-2, -2), 1)))
    found = diff(a, b)
    assert found
    assert (found.index_a, found.index_b) == (0, 0), str(found)


def test_another_order_on_the_main_thread_is_a_divergence() -> None:
    one, other, far = op("a", (-1, -1), 0), op("b", (-2, -2), 1), op("c", (-1, -2), 2)
    a = run((MAIN, one), (MAIN, other), (WORKER, far))
    b = run((WORKER, far), (MAIN, other), (MAIN, one))
    assert diff(a, b)
    assert not diff(a, run((WORKER, far), (MAIN, one), (MAIN, other)))


def test_another_order_of_calls_that_are_alike_on_the_main_thread_is_a_divergence() -> None:
    """Each is paired with the other, and each has the values of a call elsewhere."""
    one, other, far = op("k", (-1, -1), 0), op("k", (-2, -2), 1), op("far", (-2, -1), 9)
    between = [(MAIN, op(name, (-1, -2), 2 + n)) for n, name in enumerate("abc")]
    a = run((MAIN, one), *between, (MAIN, other), (WORKER, far))
    b = run((MAIN, other), *between, (MAIN, one), (WORKER, far))
    found = diff(a, b)
    assert (found.verdict, found.index_a, found.index_b) == (INPUTS_DIFFER, 0, 0), str(found)


def test_a_call_stands_for_one_call_of_the_other_run() -> None:
    """Two calls ran on the main thread; one of them is on another thread now, and the other was never run."""
    one, other, third = op("k", (-1, -1), 0), op("k", (-2, -2), 1), op("k", (-1, -2), 2)
    a = run((MAIN, one), (MAIN, one), (WORKER, other))
    b = run((MAIN, other), (MAIN, third), (WORKER, one))
    assert diff(a, b)
    assert not diff(a, run((MAIN, other), (MAIN, one), (WORKER, one)))


def test_a_reader_of_another_random_number_does_not_make_the_numbers_wrong() -> None:
    """What draws numbers reads the same each time; both runs drew the same ones."""
    drawn = [(MAIN, op("drawn", (-1, -1), n, gives=100 + n)) for n in range(2)]
    for thread in (MAIN, WORKER):  # one thread and two
        last = thread, op("far", (-2, -1), 9)
        a = run(*drawn, (MAIN, op("read", (0, 0), 2)), last)
        b = run(*drawn, (MAIN, op("read", (1, 1), 2)), last)
        found = diff(a, b)
        assert (found.verdict, found.index_a) == (INPUTS_DIFFER, 2), str(found)


@pytest.mark.parametrize("main_thread", [MAIN, 0])  # 0: a run of an older version
def test_main_threads_belong_together_whatever_they_run(main_thread: int) -> None:
    a = run((MAIN, op("a", (-1, -1), 0)), (WORKER, op("b", (-2, -2), 1)), main_thread=main_thread)
    b = run((MAIN, op("c", (-1, -1), 0)), (WORKER, op("b", (-2, -2), 1)), main_thread=main_thread)
    found = diff(a, b)
    assert (found.index_a, found.index_b) == (0, 0)
    assert found.thread == ("the main thread" if main_thread else "thread 1 of 2")


def test_work_that_moved_from_the_main_thread_to_another() -> None:
    ops = [op(f"op{n}", (-1, n - 1), n) for n in range(6)]
    a = run(*((MAIN, o) for o in ops))
    b = run(*((WORKER if 2 <= n < 5 else MAIN, o) for n, o in enumerate(ops)))
    for first, second in ((a, b), (b, a)):
        found = diff(first, second)
        assert not found, str(found)
        assert "3 calls ran on another thread in the second run" in found.notes


def test_a_run_of_one_thread_does_not_speak_of_threads() -> None:
    a = run((MAIN, op("a", (-1, -1), 0)), (MAIN, op("b", (0, 0), 1)))
    b = run((MAIN, op("a", (-1, -1), 0, noise=1)), (MAIN, op("b", (0, 0), 1)))
    found = diff(a, b)
    assert found.verdict == NONDETERMINISTIC
    assert found.thread == ""
    assert found.to_json()["divergence"]["thread"] is None
    assert "thread" not in str(found)
