"""Runs of the gcu backend compared with each other, with Inductor's and with eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.gcu.lowering import operator_texts


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    z = torch.relu(y) + 1
    a = z.neg()
    return (a * 2).amax(0)


Record = Callable[..., Any]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    torch.manual_seed(0)
    x, w = torch.randn(6, 5), torch.randn(5, 4)

    def run(name: str, backend: str = "") -> Any:
        torch._dynamo.reset()
        called = torch.compile(f, backend=backend) if backend else f
        ops = "graph" if backend else "all"
        with kernelscope.record(values="save", path=tmp_path / f"{name}.kscope", ops=ops) as made:
            called(x, w)
        return made

    return run


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_against_inductor_and_eager(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, again = record("gcu", "gcu"), record("gcu2", "gcu")
    assert not kernelscope.diff(clean, again)
    others = {"inductor": record("inductor", "inductor"), "eager": record("eager")}
    for other in others.values():
        found = kernelscope.diff(clean, other)
        assert found.verdict == "different-kernel"
        assert any("all values that can be compared agree" in note for note in found.notes), str(found)
        assert "it is the last call" not in str(found)
    rule = operator_texts.POINTWISE["relu"]
    monkeypatch.setitem(operator_texts.POINTWISE, "relu", replace(rule, body="__max($0, 0.25f)"))
    wrong = record("wrong", "gcu")
    for other in (*others.values(), clean):
        for a, b in ((wrong, other), (other, wrong)):
            found = kernelscope.diff(a, b)
            assert found.verdict == "different-kernel"
            assert found.origin is not None
            lines = range(line_of("z = torch.relu(y) + 1"), line_of("return (a * 2).amax(0)") + 1)
            assert found.origin.line in lines  # what one kernel computes; or eager operators in its place
            gcu = found.kernel_name if a is wrong else found.other_kernel_name
            assert gcu.startswith("kernel_")
            assert found.argument is not None
            (errors,) = found.errors
            assert 0.1 < errors.max_abs <= 0.5 + 1e-6
            assert found.to_json()["divergence"]["max_abs"] == errors.max_abs


def test_a_kernel_that_is_not_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelscope.gcu.execution.executor import Launch

    original, count = Launch.run, iter(range(100))

    def racy(launch: Launch, tensors: Any, symbols: tuple[int, ...]) -> None:
        original(launch, tensors, symbols)
        if len(launch.kernel.nodes) > 1:
            tensors[-1].view(-1)[0] += next(count)

    monkeypatch.setattr(Launch, "run", racy)
    compiled = torch.compile(f, backend="gcu")
    x, w = torch.randn(6, 5), torch.randn(5, 4)
    result = kernelscope.check_determinism(lambda: compiled(x, w))
    assert result
    (kernel,) = result.kernels
    assert kernel.kernel_name.startswith("kernel_")
    assert kernel.kind == "gcu"
