"""Programs that compile, reset Dynamo or open a recording inside of a recording."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.integration.probes.unperturbed import assert_unperturbed, recorded
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_inductor_cache

import kernelscope


def test_recompiles_inside_a_recording() -> None:
    @torch.compile(dynamic=False)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    with kernelscope.record(values="hash") as run:
        for n in (3, 5, 3, 7):
            assert f(torch.ones(n)).shape == (n,)
    assert [c.arguments[0].tensor.shape for c in run] == [(3,), (5,), (3,), (7,)]
    assert len(run.graphs) == 3
    assert len({g.compile_id for g in run.graphs}) == 3


def test_dynamo_reset_inside_a_recording(leftovers: Callable[[], list[str]]) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 4

    x = torch.ones(4)
    f(x)
    with kernelscope.record(values="hash") as run:
        first = f(x)
        torch._dynamo.reset()
        assert torch.equal(f(x), first)
        torch._dynamo.reset()
    assert torch.equal(f(x), first)
    assert len(run) == 2
    assert run.calls[0].post_hashes == run.calls[1].post_hashes
    assert not leftovers()


def test_compiled_before_the_recording_in_a_cache_that_is_gone() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 5).sum()

    x = torch.ones(4, requires_grad=True)
    with fresh_inductor_cache():
        f(x).backward()
    _, run = recorded(lambda: f(x).backward())
    assert {c.phase for c in run} == {"forward", "backward"}
    assert all(c.origin is not None and c.origin.file == __file__ for c in run)


def test_graph_breaks() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 6
        torch._dynamo.graph_break()
        return y.cos() + 6

    x = torch.ones(4)
    run = assert_unperturbed(f, x)
    assert len(run.graphs) == 2
    assert [c.graph_call for c in run] == sorted({c.graph_call for c in run})


def test_recording_inside_a_compiled_function() -> None:
    """The block breaks the graph; what is inside is recorded."""
    runs = []

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 7
        with kernelscope.record() as run:
            y = g(y)
        runs.append(run)
        return y

    @torch.compile
    def g(x: torch.Tensor) -> torch.Tensor:
        return x.cos() + 7

    x = torch.ones(4)
    assert torch.allclose(f(x), (x.sin() + 7).cos() + 7)
    f(x)
    assert [len(run) for run in runs] == [1, 1]


def test_step_inside_a_compiled_function() -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 8
        kernelscope.step()
        return y.cos() + 8

    x = torch.ones(4)
    f(x)
    graphs = counters["stats"]["unique_graphs"]
    with kernelscope.record() as run:
        f(x)
        f(x)
    f(x)
    assert counters["stats"]["unique_graphs"] == graphs
    assert [c.step for c in run] == [0, 1, 1, 2]
