"""Tensors of a recorded run: read by name, shown as a picture, written as .npz."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch

import kernelscope
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.views.picture import picture

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    x = torch.arange(12.0).view(3, 4)
    with kernelscope.record(values="save", ops="all", path=tmp_path / "r"):
        x.add_(1)
        x.bfloat16()
    return tmp_path / "r.kscope"


def test_a_value_by_name(saved: Path) -> None:
    run = kernelscope.load(saved)
    add, cast = run.calls
    expected = numpy.arange(12.0).reshape(3, 4)
    assert numpy.array_equal(add.value("self"), expected + 1)
    assert numpy.array_equal(add.value("self", "before"), expected)
    assert numpy.array_equal(cast.value("result"), expected + 1)  # exact in bfloat16, too
    with pytest.raises(RunError, match=r"has no tensor slef: did you mean self\?"):
        add.value("slef")
    with pytest.raises(ValueError, match="'before' or 'after'"):
        add.value("self", "during")


def test_a_run_without_tensors() -> None:
    with kernelscope.record(ops="all") as run:
        torch.ones(2)
    with pytest.raises(RunError, match="kernelscope run --values save"):
        run.calls[0].value("result")


def test_show_value(saved: Path, capsys: Capture) -> None:
    words = ["show", str(saved), "--call", "0", "--value", "self"]
    assert main([*words, "-o", "x.npz"]) == 0
    out = capsys.readouterr().out
    assert "aten.add_.Tensor, self: F32[3, 4]" in out
    assert "█" in out
    with numpy.load("x.npz") as file:
        assert numpy.array_equal(file["self"], numpy.arange(1.0, 13.0).reshape(3, 4))
    assert main([*words, "-o", "x.npz"]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert main([*words, "-o", "x.pt"]) == 2
    assert main(["show", str(saved), "--value", "self"]) == 2
    assert "give --call N --value" in capsys.readouterr().err


def test_pictures() -> None:
    counts = [int(line.split()[-1]) for line in picture(numpy.arange(24.0))]
    assert counts == [2] * 12
    assert picture(numpy.zeros((0, 3))) == ["(empty)"]
    assert picture(numpy.array([numpy.nan, numpy.inf, 1.0]))[0] == "1 NaN, 1 infinite, of 3 elements"
    assert picture(numpy.array([[0.0, 1.0], [1.0, 0.0]]))[-2:] == [" █", "█ "]
    assert picture(numpy.array([[numpy.nan, 1.0]]))[-1] == "! "
    assert picture(numpy.full((100, 200), 1.5))  # larger than a terminal
    assert len(picture(numpy.array([-1.7e308, 1.7e308]))) == 12
