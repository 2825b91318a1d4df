"""A repro script whose operators do not compute with float64 says so."""

from __future__ import annotations

import pytest
import torch

from kernelscope.repro.embedded.rounding import Reference


def test_results_that_are_not_compared_with_float64(capsys: pytest.CaptureFixture[str]) -> None:
    def of_one_dtype(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if x.dtype != torch.float32:
            raise RuntimeError("expected float32")
        return {"y": x.sin()}

    known = Reference(of_one_dtype, lambda: {"x": torch.ones(3)})
    assert known.right
    assert "eager fails with float64" in capsys.readouterr().out
    Reference(lambda x: {"y": x.sin()}, lambda: {"x": torch.ones(3)})
    assert not capsys.readouterr().out
