"""Kernels that do something else each time are named; programs that only look so are not."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from tests.integration.faults.unsteady import FAULTS, Fault, as_it_is, planted
from tests.support import seed_blocks

import kernelscope
from kernelscope import RunError
from kernelscope.config import Config
from kernelscope.debug_mode import DebugMode
from kernelscope.recording import Recording
from kernelscope.recording.again.call_replay import TIMES

QUICK = ("lost updates", "each launch another", "a custom operator")


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.slow) for f in FAULTS],
)
def test_a_planted_fault_is_named(fault: Fault) -> None:
    with planted(fault) as changed:
        fn, args = fault.program()
        result = kernelscope.check_determinism(fn, *args, runs=5)
    assert len(changed) == (fault.plant is not as_it_is)  # the fault is in the code, in one kernel
    assert result
    [kernel] = result.kernels
    assert fault.kernel in kernel.kernel_name
    assert fault.graph in kernel.graph
    assert kernel.is_confirmed
    assert kernel.origin is not None
    assert kernel.origin.file.endswith("unsteady.py")
    assert kernel.kernel_name in str(result)
    form = result.to_json()["divergence"]
    assert form["kernel_name"] == kernel.kernel_name
    assert form["verdict"] == "nondeterministic-kernel"
    assert {"index", "kind", "argument", "origin"} <= form.keys()
    if not kernel.reads_unwritten:
        assert form["max_abs"] > 0


def test_the_loop_that_one_would_write_by_hand_finds_it_too() -> None:
    """Pattern 2 of the guide, on the calls of two runs."""
    [fault] = [f for f in FAULTS if f.plant is as_it_is]
    place = seed_blocks.given("cpu", "cpp")
    fn, args = fault.program()
    calls = []
    for _ in range(2):
        with DebugMode(record_triton_kernels=True) as mode, DebugMode.log_tensor_hashes():
            fn(*args)
        calls.append([op for op in mode.operators if isinstance(op, kernelscope.KernelCall)])
    name = "pattern 2: find non-deterministic kernel"
    _, printed = seed_blocks.run(name, place, calls1=calls[0], calls2=calls[1])
    accused = [line for line in printed.splitlines() if "THIS kernel is non-deterministic" in line]
    assert accused
    assert fault.kernel in accused[0]


# -- what is no fault ------------------------------------------------------------------------------------


def dropout() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    compiled = torch.compile(model)
    return lambda x: compiled(x).sum().backward(), (torch.randn(4, 8),)


def training() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Weights, running statistics, gradients and momenta change in each run, and are put back."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model)

    def steps(x: torch.Tensor) -> None:
        for _ in range(2):
            optimizer.zero_grad()
            compiled(x).square().mean().backward()
            optimizer.step()

    return steps, (torch.randn(4, 8),)


def in_place() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(random.random())
        return x.sum()

    return torch.compile(fn), (torch.full((4, 4), float("nan")),)


def eager() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda x: torch.nn.functional.dropout(x @ x, 0.3).relu_().cumsum(0), (torch.randn(8, 8),)


@pytest.mark.parametrize("program", [dropout, training, in_place, eager])
def test_no_false_alarm(program: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    fn, args = program()
    result = kernelscope.check_determinism(fn, *args, runs=3)
    assert not result, str(result)
    assert result.calls > 0
    assert "identical in 3 runs" in str(result)
    assert result.to_json()["divergence"] is None


def test_all_is_put_back_at_the_end() -> None:
    model = torch.nn.BatchNorm1d(4)
    x = torch.randn(8, 4, requires_grad=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)

    def step(x: torch.Tensor) -> None:
        model.train(not model.training)
        model(x * torch.rand(())).sum().backward()

    assert not kernelscope.check_determinism(step, x)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert x.grad is None
    assert model.training
    assert torch.equal(torch.rand(3), expected)


def test_replaying_a_call_changes_nothing() -> None:
    """Each call is launched 21 times, also what draws numbers or works in place; results are as without."""

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(3)
        noise = torch.rand(4, 4)
        x.mul_(noise).add_(1)
        rows = torch.zeros(4, 4).index_add_(0, torch.tensor([0, 1, 1, 3]), x)
        return [x.clone(), rows, torch.rand(2), rows.t().contiguous().relu_()]

    expected = program(torch.ones(4, 4))
    with kernelscope.record(ops="all") as run:
        program(torch.ones(4, 4))
    recording = Recording(Config(values="hash", ops="all", replay=tuple(range(len(run)))))
    recording.open()
    try:
        found = program(torch.ones(4, 4))
    finally:
        recording.close()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert recording.replayer is not None
    replays = recording.replayer.replays
    assert sorted(replays) == list(range(len(run)))
    assert [call.kernel_name for call in recording.run.calls] == [call.kernel_name for call in run.calls]
    assert not any(replay.is_confirmed or replay.error for replay in replays.values()), replays
    assert all(replay.times == TIMES for replay in replays.values())


def test_recompiling_for_each_run() -> None:
    compiles = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiles.append(graph)
        return torch._inductor.compile(graph, inputs)  # type: ignore[no-any-return]

    fn = torch.compile(lambda x: (x.cos() + 1).sum(0), backend=backend)
    assert not kernelscope.check_determinism(fn, torch.randn(8, 8), runs=2, recompile=True)
    assert len(compiles) == 2


def test_something_that_no_call_shows_is_said() -> None:
    results = iter(range(10))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy((x + 1).numpy() * next(results))

    result = kernelscope.check_determinism(fn, torch.ones(4))
    assert result
    assert "no recorded call differed" in result.unexplained
    assert not result.kernels


def test_inputs_that_differ_are_nobodys_fault() -> None:
    numbers = iter(range(10))
    result = kernelscope.check_determinism(lambda x: x * float(next(numbers)), torch.ones(4))
    assert result
    assert not result.kernels
    assert result.divergence.verdict == "inputs-differ"
    assert "no kernel is at fault" in str(result)


COUNTS = count(1)


def compiled_with_the_time(x: torch.Tensor) -> torch.Tensor:
    now = time.perf_counter()
    return torch.compile(lambda y: y * now + 1)(x)


def unseeded() -> torch.Generator:
    made = torch.Generator()
    made.seed()
    return made


def revealing_memory(x: torch.Tensor) -> torch.Tensor:
    """As after an allocation: what was there before shows."""
    memory = torch.zeros(8)
    memory.numpy()[4:] = next(COUNTS)
    return memory[:4].resize_as_(torch.ones(8)) * x[0]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda x: x * time.perf_counter_ns(), "it passes a number that differs each time"),
        (lambda x: x + torch.randn(4, generator=unseeded()), "a generator whose seed differs each time"),
        (lambda x: x + torch.full((4,), time.time()), "it passes a number that differs each time"),
        (lambda x: x + torch.tensor(list(os.urandom(4))), "it makes its input from"),
        (lambda x: [x.sin() for _ in range(next(COUNTS))], "the calls that it makes differ each time"),
        (revealing_memory, "it makes a tensor larger and does not write to the new elements"),
        pytest.param(compiled_with_the_time, "a number of its own", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_program_that_differs_by_itself_is_told_so(fn: Callable[[torch.Tensor], Any], says: str) -> None:
    result = kernelscope.check_determinism(fn, torch.ones(4), recompile=says.startswith("a number"))
    assert result
    assert not result.kernels
    assert says in result.by_the_program, str(result)
    assert f"no kernel is at fault: the program itself varies: {result.by_the_program}" in str(result)
    assert result.to_json()["by_the_program"] == result.by_the_program
    assert ("zero_()" in str(result)) == (fn is revealing_memory)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: kernelscope.check_determinism(3), TypeError, "must be callable"),  # type: ignore[arg-type]
        (lambda: kernelscope.check_determinism(torch.sin, torch.ones(2), runs=1), ValueError, "at least 2"),
        (lambda: kernelscope.check_determinism(lambda: 3), RunError, "launched no kernel"),
        (
            lambda: kernelscope.check_determinism(torch.sin, torch.ones(2), ops="x"),
            ValueError,
            "ops='x'",
        ),
    ],
)
def test_bad_input(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
