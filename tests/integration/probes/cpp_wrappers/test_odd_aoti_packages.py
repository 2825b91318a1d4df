"""Packages of AOTInductor with odd arguments, on many threads, or compiled by another program."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch._inductor
from tests.integration.probes.cpp_wrappers.cpp_wrapper_operators import X, pair, raise_by

import kernelscope
from kernelscope.probes.cpp_wrappers.cpp_text import input_names
from kernelscope.values import observe


class Odd(torch.nn.Module):
    """Keywords, state that changes, an input that is written to, operators that write, any batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, *, scale: torch.Tensor, bias: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        self.count.add_(1)
        y.mul_(2)
        total, rest = pair([x @ x.t(), x @ y.t()])
        raise_by(rest, 2.0)
        wide = torch.bmm(x.expand(2, -1, -1), torch.ones(2, 4, 4))
        return {"a": total * scale.sum() - bias.sum(), "b": rest, "c": y + 1, "d": wide, "e": self.count * 3}


def test_an_odd_package(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    x, y, scale, bias = torch.randn(5, 4), torch.randn(5, 4), torch.ones(4), torch.zeros(4)
    shapes = {"x": {0: batch}, "y": {0: batch}, "scale": None, "bias": None}
    exported = torch.export.export(Odd(), (x, y), {"scale": scale, "bias": bias}, dynamic_shapes=shapes)
    path = kernelscope.aoti_compile_and_package(exported, package_path=str(tmp_path / "first.pt2"))
    moved = Path(path).rename(tmp_path / "moved.pt2")
    model, eager, stream = torch._inductor.aoti_load_package(str(moved)), Odd(), io.StringIO()
    for size in (5, 9):
        x, y = torch.randn(size, 4), torch.randn(size, 4)
        ours, theirs = y.clone(), y.clone()
        with observe("2", stream=stream) as run:
            made = model(x, ours, bias=bias, scale=scale)  # not in the order of its signature
        expected = eager(x, theirs, scale=scale, bias=bias)
        assert all(torch.allclose(made[name], expected[name], atol=1e-5) for name in expected)
        assert torch.equal(ours, theirs)
        assert not run.findings
    text = stream.getvalue()
    names = input_names(run.graphs[0].source)
    assert f"aoti_model_inputs - {names[-2]}\n{scale}\n" in text
    assert f"aoti_model_inputs - {names[-1]}\n{bias}\n" in text
    pairs, raised = (next(call for call in run if name in call.kernel_name) for name in ("pair", "raise_by"))
    assert dict(zip(pairs.arg_names, pairs.roles, strict=True)) == {
        "xs[0]": "in", "xs[1]": "in", "result0": "out", "result1": "out"
    }  # fmt: skip
    assert dict(zip(raised.arg_names, raised.roles, strict=True)) == {"x": "inout"}
    assert raised.modified_args
    assert raised.pre_stats[0].mean + 2 == pytest.approx(raised.post_stats[0].mean, abs=1e-5)


@pytest.mark.slow
def test_four_threads_at_once(tmp_path: Path) -> None:
    """Of a model without a custom operator in Python: with one, torch's runner itself waits forever."""
    exported = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()), (X,))
    path = kernelscope.aoti_compile_and_package(exported, package_path=str(tmp_path / "m.pt2"))
    model = torch._inductor.aoti_load_package(path)
    inputs = [torch.full((5, 4), float(i)) for i in range(4)]
    expected = [model(x) for x in inputs]
    with kernelscope.record(values="hash") as run, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: model(inputs[i % 4]), range(40)))
    assert all(torch.equal(one, expected[i % 4]) for i, one in enumerate(found))
    by_execution: dict[int, list[str]] = {}
    for call in run:
        by_execution.setdefault(call.graph_call, []).append(call.kernel_name)
    assert len(by_execution) == 40
    assert len({tuple(names) for names in by_execution.values()}) == 1
    assert not run.findings


@pytest.mark.slow
def test_a_package_that_somebody_else_compiled(tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(4, 2), (X,))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "m.pt2"))
    model = torch._inductor.aoti_load_package(path)
    with kernelscope.record() as run:
        model(X)
    [finding] = run.findings
    assert finding.kind == "unseen-graph"
    assert "kernelscope.aoti_compile_and_package" in finding.message
    assert "program.module()" in finding.message
