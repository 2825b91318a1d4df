"""Random compiled programs: the hashes of a recording equal those of reading everything each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import kernelscope
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.recording.planning import RecordingPlanner

SIDE = 8
Values = list[torch.Tensor]
Step = Callable[[Values, int, int], None]


def _product(values: Values, a: int, b: int) -> None:
    values.append(values[a] @ values[b])  # an extern kernel: what comes before it and after it is not fused


def _pointwise(values: Values, a: int, b: int) -> None:
    values.append((values[a] - values[b]).sin())


def _transposed(values: Values, a: int, b: int) -> None:
    values.append(values[a].t())


def _slices(values: Values, a: int, b: int) -> None:
    values.append(torch.cat([values[a][:3], values[b][3:]], 0))


def _write_part(values: Values, a: int, b: int) -> None:
    values[a] = values[a].clone()
    values[a][2:5].copy_(values[b][1:4])


def _add_in_place(values: Values, a: int, b: int) -> None:
    values[a] = values[a] + 0
    values[a].add_(values[b], alpha=0.5)


def _write_to_an_input(values: Values, a: int, b: int) -> None:
    values[0].mul_(0.5)


def _write_through_a_view(values: Values, a: int, b: int) -> None:
    values[1].view(-1)[::3].add_(1)


def _forget(values: Values, a: int, b: int) -> None:
    if len(values) > 3:
        values.pop()


def _reduce(values: Values, a: int, b: int) -> None:
    values.append(values[a].softmax(b % 2) * values[b].sum(0))


STEPS: list[Step] = [
    _product, _product, _pointwise, _transposed, _slices, _write_part, _add_in_place, _write_to_an_input,
    _write_through_a_view, _forget, _reduce,
]  # fmt: skip
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 99), st.integers(0, 99)), min_size=4, max_size=14
)
FILTERS = st.sampled_from(["*", "*", "extern*", "cpp*", "*mm"])


def program(steps: list[tuple[Step, int, int]]) -> Callable[..., Any]:
    def run(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        values = [first, second]
        for step, a, b in steps:
            step(values, a % len(values), b % len(values))
        return values[-1] + values[len(values) // 2]

    return run


def inputs(number: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    base = torch.randn(2, SIDE, SIDE, generator=generator)
    # Sometimes both are views of one storage, sometimes not, and once they are one tensor.
    if number == 2:
        return [base[0], base[0].detach()]
    return [base[0], base[1]] if number % 2 else [base[0].clone(), base[1].clone()]


def hashes(calls: list[KernelCall]) -> list[Any]:
    return [(c.kernel_name, c.pre_hashes, c.post_hashes, c.uninitialised) for c in calls]


def check(steps: list[tuple[Step, int, int]], kernel: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program(steps), dynamic=False)
    compiled(*inputs(0))
    compiled(*inputs(1))
    compiled(*inputs(2))
    alone: list[list[Any]] = []
    for number in range(5):
        with kernelscope.record(values="hash", verify="reread", kernel=kernel) as run:
            compiled(*inputs(number))
        alone.append(hashes(run.calls))
    everything = [entry for entries in alone for entry in entries]

    def together(**how: str) -> Run:
        with kernelscope.record(values="hash", kernel=kernel, **how) as run:
            for number in range(5):
                compiled(*inputs(number))
        return run

    once = together()
    assert hashes(once.calls) == everything
    assert hashes(together(verify="reread").calls) == everything
    if kernel == "*":
        for order, when in (([0, 4, 2, 0, 1, 3, 1], "before the next"), ([2, 2, 0, 1, 0], "while small")):
            # On a GPU what is small waits for others.
            waiting = mock.patch.object(RecordingPlanner, "when", lambda *_, when=when: when)
            with waiting, kernelscope.record(values="hash") as planned:
                for number in order:
                    compiled(*inputs(number))
                assert any(isinstance(entry, bytes) for entry in planned.entries) or not planned.entries
            expected = [entry for number in order for entry in alone[number]]
            assert hashes(planned.calls) == expected


few = settings(max_examples=5, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


@seed(20)
@few
@given(PROGRAMS, FILTERS)
def test_random_programs(steps: list[tuple[Step, int, int]], kernel: str) -> None:
    check(steps, kernel)


@pytest.mark.slow
@settings(parent=few, max_examples=60)
@given(PROGRAMS, FILTERS)
def test_many_random_programs(steps: list[tuple[Step, int, int]], kernel: str) -> None:
    check(steps, kernel)
