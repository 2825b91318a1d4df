"""`kernelscope invariance script.py`: each compiled function of a script, or its eager modules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.json_schemas import wrong_in

from kernelscope.cli import main

SCRIPT = """
import torch

@torch.compile
def centred(x):
    return x - x.mean(0)

for _ in range(2):
    print(centred(torch.arange(12.0).reshape(6, 2)).shape)
"""
EAGER = """
import torch

class Scaled(torch.nn.Module):
    def forward(self, x):
        return x.relu() * 2

print(Scaled()(torch.arange(12.0).reshape(6, 2)).shape)
"""
TWO_PLACES = """
import torch

@torch.compile
def weighed(x, table, mask):
    return (x.relu() * mask).t() + table.sum()

print(weighed(torch.ones(5, 6), torch.ones(6, 6), torch.ones(5, 6)).shape)
"""


def test_the_compiled_functions_of_a_script(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert main(["invariance", "--json", str(script)]) == 1
    form = json.loads(capfd.readouterr().out)
    assert wrong_in("invariance", form) == []
    assert [function["function"] for function in form["functions"]] == ["centred"]
    assert "mean" in form["first"]["kernel_name"]
    assert form["first"]["cause"] == "mixes-rows"
    assert form["first"]["origin"][0]["line"] == 6


def test_modules_that_run_eagerly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "eager.py"
    script.write_text(EAGER)
    assert main(["invariance", "--ops", "all", str(script)]) == 0
    printed = capfd.readouterr().out
    assert "invariant: no row depends on the others" in printed
    assert main(["invariance", str(script)]) == 2
    assert "the script called no compiled function" in capfd.readouterr().err


def test_a_dimension_that_no_argument_has_is_said_with_their_shapes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "eager.py"
    script.write_text(EAGER)
    assert main(["invariance", "--ops", "all", "--dim", "5", str(script)]) == 2
    assert "no argument is a tensor with rows along dimension 5: their shapes are (6, 2)" in (
        capfd.readouterr().err.replace("\n", " ")
    )


def test_rows_in_other_dimensions_of_other_arguments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are along dimension 0 of the result, which need not be said."""
    script = tmp_path / "script.py"
    script.write_text(TWO_PLACES)
    assert main(["invariance", "--json", "--dim", "x=1,mask=1", str(script)]) == 0
    form = json.loads(capfd.readouterr().out)
    assert wrong_in("invariance", form) == []
    function = form["functions"][0]
    assert (function["rows"], function["results_followed"]) == (6, 1)
    assert function["counts"]["invariant"] > 0


def test_dimensions_that_do_not_fit_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(EAGER)
    assert main(["invariance", "--ops", "all", "--dim", "1,none", str(script)]) == 2
    assert "dim has 2 entries for 1 arguments; give one for each" in capfd.readouterr().err.replace("\n", " ")
    with pytest.raises(SystemExit):
        main(["invariance", "--dim", "first", str(script)])
    assert "'first' is not a dimension (0), one for each argument (0,1,none), or by name" in (
        capfd.readouterr().err.replace("\n", " ")
    )
