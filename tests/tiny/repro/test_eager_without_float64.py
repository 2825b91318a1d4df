"""A repro script whose operators do not compute with float64, or not at all, says so."""

from __future__ import annotations

import pytest
import torch

from kernelscope.repro.embedded.main import check
from kernelscope.repro.embedded.rounding import Reference


def test_results_that_are_not_compared_with_float64(capsys: pytest.CaptureFixture[str]) -> None:
    def of_one_dtype(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if x.dtype != torch.float32:
            raise RuntimeError("expected float32")
        return {"y": x.sin()}

    known = Reference(of_one_dtype, lambda: {"x": torch.ones(3)})
    assert known.right
    assert (
        "eager fails in float64, so the results are compared with eager in its own dtypes only"
        in capsys.readouterr().out
    )
    Reference(lambda x: {"y": x.sin()}, lambda: {"x": torch.ones(3)})
    assert not capsys.readouterr().out


def test_eager_that_fails_is_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    def eager(x: torch.Tensor) -> dict[str, torch.Tensor]:
        raise TypeError("no such item")

    about = {"role": "in", "dtype": "float32", "shape": (2,), "stride": (1,), "values": [1.0, 2.0]}
    assert check(__file__, lambda x: {"y": x + 1}, eager, {"x": about}, {}) == 2
    said = capsys.readouterr().out
    assert "note: eager raised TypeError: no such item" in said
    assert "inconclusive" in said


def test_a_list_that_is_written_gets_small_errors_too() -> None:
    def eager(x: torch.Tensor) -> dict[str, torch.Tensor]:
        written = [x]
        torch.ops.aten._foreach_mul_.Scalar(written, 1 / 3)
        return {"x": written[0]}

    known = Reference(eager, lambda: {"x": torch.linspace(1, 2, 8)})
    assert torch.equal(known.right["x"], torch.linspace(1, 2, 8) * (1 / 3))
    off = [float((run["x"] - known.exact["x"]).abs().max()) for run in known.shaken]
    assert 0 < max(off) < 1e-6
