"""Recordings that open in the middle of a graph that makes notes, and graphs inside of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.debug_mode import DebugMode
from kernelscope.probes.bus import BUS
from kernelscope.probes.triton import user_kernels as user_triton

INSIDE: list[Callable[[], Any]] = []


@torch.library.custom_op("kernelscope_late::gate", mutates_args=())
def gate(x: torch.Tensor) -> torch.Tensor:
    if INSIDE:
        INSIDE.pop()()
    return x + 1


@gate.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("kernelscope_late::fill", mutates_args={"out"})
def fill(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x * 2)


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    yield
    assert not INSIDE


def test_the_rest_of_a_graph_that_was_executing_is_a_finding() -> None:
    f = torch.compile(lambda x: gate(x.sin()).cos())
    x = torch.randn(8)
    f(x)
    with ExitStack() as later:
        INSIDE.append(lambda: runs.append(later.enter_context(kernelscope.record())))
        runs: list[Any] = []
        f(x)
        f(x)
    (run,) = runs
    assert [c.graph_call for c in run.calls] == [run.calls[0].graph_call] * 3, "the second call, as a whole"
    (finding,) = run.findings
    assert finding.kind == "unseen-graph"
    assert "a compiled graph was executing when the recording opened (thread MainThread)" in finding.message


def test_debug_mode_opens_inside_a_noted_graph() -> None:
    @torch.compile
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (gate(x.sin()).cos() @ w).softmax(1)

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    f(x, w)
    mode = DebugMode(store_original_args=True)
    with ExitStack() as later, kernelscope.record():
        f(x, w)
        f(x, w)
        INSIDE.append(lambda: later.enter_context(mode))
        f(x, w)
        f(x, w)
        later.close()
    whole = [c for c in mode.run.calls if c.args and isinstance(c.args[0], torch.Tensor)]
    assert {c.kernel_name for c in whole} >= {"extern_kernels.mm", "kernelscope_late.gate.default"}
    for call in whole:
        shapes = [a.tensor.shape for a in call.arguments if a.tensor is not None and not a.returned]
        assert [tuple(t.shape) for t in call.args if isinstance(t, torch.Tensor)][: len(shapes)] == shapes


def test_a_graph_inside_an_operator_knows_its_parent_also_when_noted(tmp_path: Path) -> None:
    inner = torch.compile(lambda x: (x @ x).cos())

    @torch.library.custom_op("kernelscope_late::inner", mutates_args=())
    def run_inner(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + 1

    run_inner.register_fake(torch.empty_like)

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (run_inner(x.sin()) @ x).softmax(1)

    x = torch.randn(8, 8)
    f(x)
    with kernelscope.record() as run:
        for _ in range(3):
            f(x)
    once = len(run) // 3
    parents = [None if c.parent is None else c.parent % once for c in run.calls]
    assert parents == parents[:once] * 3
    inside = [c for c in run.calls if c.parent is not None]
    assert len(inside) == 6
    assert {run.calls[c.parent or 0].kernel_name for c in inside} == {"kernelscope_late.inner.default"}
    with kernelscope.record(path=tmp_path / "run"):
        for _ in range(3):
            f(x)
    whole = [c.parent for c in run.calls]
    assert [c.parent for c in kernelscope.load(tmp_path / "run").calls] == whole
    assert [c.parent for c in kernelscope.load(run.save(tmp_path / "saved")).calls] == whole


def test_memory_that_was_born_unseen_is_not_hashed() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y, out = gate(x.sin()), torch.empty(8, 8)
        fill(y.cos(), out)
        return out + 1

    x = torch.randn(8, 8)
    f(x)
    late = kernelscope.record(values="hash")
    opened: list[kernelscope.Run] = []
    with kernelscope.record():
        f(x)
        f(x)
        INSIDE.append(lambda: opened.append(late.__enter__()))
        f(x)
        f(x)
        late.__exit__(None, None, None)
    first, second = opened[0].select(kernel="kernelscope_late.fill.default")
    assert first.pre_hashes == second.pre_hashes
    assert 1 not in first.pre_hashes


def test_a_triton_kernel_inside_a_noted_launch_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where ATen has an operator that is written in Triton."""
    ran = []
    probe = user_triton.UserTriton()
    run = probe._around_run(lambda kernel, *args, **kwargs: ran.append(kernel))
    with kernelscope.record() as recorded:
        monkeypatch.setattr(BUS.here, "graph_call", 7)
        monkeypatch.setattr(BUS.here, "launch", None)
        run("kernel", grid=(1,), warmup=False)
        monkeypatch.undo()
    assert ran == ["kernel"]
    assert not len(recorded)
    assert [f.kind for f in recorded.findings] == ["nothing-compiled"]  # and no error of ours
