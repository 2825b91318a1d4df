"""Values inside gcu graphs: printed, saved, watched and replaced like those of Inductor's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.values import IntermediateValueDebuggingLevel as Level
from kernelscope.values import WatchHit


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x @ w).log()
    return y.softmax(-1).cumsum(0)


@pytest.fixture
def compiled() -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(f, backend="gcu")
    return made


def given() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(4, 3), torch.rand(3, 2)


def test_printed(compiled: Callable[..., Any]) -> None:
    x, w = given()
    expected, out = compiled(x, w), io.StringIO()
    with kernelscope.values.observe(Level.PRINT_ONLY, stream=out) as run:
        assert torch.equal(compiled(x, w), expected)
    text = out.getvalue()
    product, softmax, cumsum = (call.kernel_name for call in run.calls)
    assert "aoti_model_inputs - l_x_\n" in text
    assert f"gcu: before_launch - {product} - l_w_\n" in text
    assert f"gcu: before_launch - {product} - mm\nValues:  uninitialised" in text
    assert f"gcu: after_launch - {softmax} - div\n" in text
    assert f"gcu: before_launch - {cumsum} - div\n" in text  # as the graph's code calls it
    assert str(expected) in text


def test_saved(compiled: Callable[..., Any], tmp_path: Path) -> None:
    x, w = given()
    expected = compiled(x, w)
    with kernelscope.values.observe(Level.SAVE_ONLY, folder=tmp_path / "values"):
        compiled(x, w)
    files = {p.name: torch.load(p, weights_only=True) for p in (tmp_path / "values").rglob("*.pt")}
    product = next(files[n] for n in files if re.fullmatch(r"after_launch_kernel_\w+_0_mm_cpu.pt", n))
    torch.testing.assert_close(product, x @ w)
    assert torch.equal(files["after_launch_aten.cumsum.default_result_cpu.pt"], expected)
    assert torch.equal(files["aoti_model_inputs_l_x__cpu.pt"], x)
    assert not [
        n for n in files if re.fullmatch(r"before_launch_kernel_\w+_0_mm_cpu.pt", n)
    ]  # not written yet


def test_watched(compiled: Callable[..., Any], tmp_path: Path) -> None:
    x, w = given()
    compiled(x, w)
    with pytest.raises(WatchHit) as hit, kernelscope.values.watch("nan", folder=tmp_path / "hits"):
        compiled(-x, w)
    said = str(hit.value)
    assert "[gcu]" in said
    assert "NaN of 8 elements in div" in said
    assert "not in its inputs: this call produced it" in said
    assert "test_values.py:" in said


def test_replaced(compiled: Callable[..., Any]) -> None:
    x, w = given()
    expected = compiled(x, w)
    with kernelscope.record() as run:
        compiled(x, w)
    names = [call.kernel_name for call in run.calls]
    with kernelscope.replace(names[1], lambda args: args["mm"] * 0 + 2):
        assert torch.equal(compiled(x, w), torch.tensor([2.0, 4, 6, 8])[:, None].expand(4, 2))
    with kernelscope.replace("aten.cumsum.default", lambda args: args["self"] * 0 + 7):
        assert torch.equal(compiled(x, w), torch.full((4, 2), 7.0))
    assert torch.equal(compiled(x, w), expected)
