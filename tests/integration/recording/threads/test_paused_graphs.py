"""A graph stops in its middle; meanwhile recordings open and close, and the process forks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.integration.recording.loaded_wrappers import wrapper_codes
from tests.integration.recording.threads.forked_child import in_child

import kernelscope
from kernelscope.config import Config
from kernelscope.recording import Recording

Program = Callable[[torch.Tensor], torch.Tensor]


class Gate:
    """Stops a compiled graph in its middle, until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.inside: Callable[[], None] = lambda: None

    def close(self) -> None:
        self.reached.clear()
        self.go_on.clear()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.reached.set()
        assert self.go_on.wait(60)
        self.inside()
        return x.clone()


@pytest.fixture(scope="module")
def gated() -> Iterator[tuple[Gate, Program]]:
    gate = Gate()
    lib = torch.library.Library("kernelscope_concurrency", "DEF")
    lib.define("gate(Tensor x) -> Tensor")
    lib.impl("gate", gate, "CPU")
    lib.impl("gate", torch.empty_like, "Meta")
    compiled = torch.compile(lambda x: torch.ops.kernelscope_concurrency.gate(x.sin()).cos() * 3)
    compiled(torch.ones(8))
    yield gate, compiled
    lib._destroy()


@pytest.mark.parametrize("executions", [0, 1, 2])
@pytest.mark.parametrize("values", ["off", "hash"])
def test_one_closes_and_another_opens_inside_a_graph(
    gated: tuple[Gate, Program], executions: int, values: str
) -> None:
    gate, program = gated
    x = torch.ones(4)
    expected = program(x)
    before = wrapper_codes()
    first = kernelscope.record()
    run = first.__enter__()
    for _ in range(executions):
        program(x)
    second = kernelscope.record(values=values)
    opened = []

    def swap() -> None:
        gate.inside = lambda: None
        first.__exit__(None, None, None)
        opened.append(second.__enter__())

    gate.inside = swap
    assert torch.equal(program(x), expected)
    gate.inside = lambda: None
    assert torch.equal(program(x), expected)
    second.__exit__(None, None, None)
    assert all(function.__code__ is code for function, code in before.items())
    assert torch.equal(program(x), expected)
    names = [c.kernel_name for c in run.calls]
    whole = [c.kernel_name for c in opened[0].calls][-3:]
    assert names == whole * executions + whole[:2]
    assert [c.kernel_name for c in opened[0].calls] == whole[2:] + whole
    assert not [f for f in opened[0].findings if f.kind == "recorder-error"]


def test_closed_while_another_thread_is_inside_a_graph(
    gated: tuple[Gate, Program], leftovers: Callable[[], list[str]]
) -> None:
    gate, compiled = gated
    expected = compiled(torch.ones(8))
    gate.close()
    with ThreadPoolExecutor(1) as pool:
        with kernelscope.record(values="hash") as run:
            inside = pool.submit(compiled, torch.ones(8))
            assert gate.reached.wait(60)
        assert len(run) == 2  # the first kernel, and the operator that is running
        closed = [(c.pre_hashes, c.post_hashes) for c in run.calls]
        gate.go_on.set()
        assert torch.equal(inside.result(60), expected)
    assert len(run) == 2
    assert [(c.pre_hashes, c.post_hashes) for c in run.calls] == closed
    assert closed[0][1]
    assert not closed[1][1]  # it was not over
    assert not leftovers()


def test_reopened_while_another_thread_is_still_inside_the_graph(
    gated: tuple[Gate, Program], leftovers: Callable[[], list[str]]
) -> None:
    gate, compiled = gated
    expected = compiled(torch.ones(8))
    gate.close()
    with ThreadPoolExecutor(1) as pool:
        with kernelscope.record():
            inside = pool.submit(compiled, torch.ones(8))
            assert gate.reached.wait(60)
        gate.go_on.set()
        with kernelscope.record() as run:
            assert torch.equal(inside.result(60), expected)
            assert torch.equal(compiled(torch.ones(8)), expected)
        assert len(run.select(kernel="*.gate.*")) == 1
    assert not run.findings
    assert not leftovers()


def test_closed_inside_the_graph_itself(
    gated: tuple[Gate, Program], leftovers: Callable[[], list[str]]
) -> None:
    gate, compiled = gated
    recording = Recording(Config(values="hash"))
    recording.open()
    gate.inside = recording.close
    try:
        compiled(torch.ones(8))
    finally:
        gate.inside = lambda: None
    assert [c.kind for c in recording.run] == ["cpp", "extern"]
    assert not leftovers()
    with kernelscope.record() as run:
        compiled(torch.ones(8))
    assert [c.phase for c in run] == ["forward"] * len(run)


def test_forked_while_another_thread_is_inside_a_graph(
    gated: tuple[Gate, Program], tiny: Program, leftovers: Callable[[], list[str]]
) -> None:
    gate, compiled = gated
    gate.close()
    with ThreadPoolExecutor(1) as pool, kernelscope.record() as run:
        inside = pool.submit(compiled, torch.ones(8))
        assert gate.reached.wait(60)

        def check() -> None:
            tiny(torch.ones(8))
            with kernelscope.record() as own:
                tiny(torch.ones(8))
            assert len(own) == 1

        in_child(check)
        gate.go_on.set()
        inside.result(60)
    assert len(run.select(kernel="*.gate.*")) == 1
    assert not leftovers()
