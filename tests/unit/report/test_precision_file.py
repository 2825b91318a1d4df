"""The file that `report --precision` reads may hold anything."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.json_schemas import wrong_in

from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.precision.errors import Error
from kernelscope.precision.kernel_row import KernelPrecision
from kernelscope.precision.ranges import Range
from kernelscope.precision.result import PrecisionMap
from kernelscope.precision.scripts.form import script_form
from kernelscope.precision.what_if import Candidate, WhatIf
from kernelscope.report.content.precision import precision_of


def _map() -> dict[str, Any]:
    kernel = KernelPrecision(
        0, "extern_kernels.mm", "extern", "forward", ("float32",), 1, Error(max_ulp=math.inf, median_ulp=0.5),
        None, "fine", "", Range(), (), "",
    )  # fmt: skip
    tried = WhatIf("bfloat16", 0.01, is_kept=True)
    tried.candidates = [Candidate("#0 extern_kernels.mm", "", 0.001, True)]
    return script_form([PrecisionMap("f", 0.01, ["result 0"], 0.0, [kernel], [tried])], "graph", 0, "")


def test_what_the_command_prints_is_read(tmp_path: Path) -> None:
    form = _map()
    assert not wrong_in("precision", form)
    (tmp_path / "map.json").write_text(json.dumps(form))
    found = precision_of(tmp_path / "map.json")
    assert found is not None
    [function] = found["functions"]
    [kernel] = function["kernels"]
    assert kernel["tries"] == [{"format": "bfloat16", "effect": 0.001, "can": True}]
    assert kernel["error"] == {"median_ulp": 0.5, "max_ulp": None, "relative": 0.0}
    json.dumps(found, allow_nan=False)
    assert precision_of(None) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expecting value"),
        ("[]", "problem is missing"),
        ('{"problem": 1}', "problem is not text"),
        ('{"problem": "", "notes": [1], "functions": []}', "is not text"),
        ('{"problem": "", "notes": [], "functions": {}}', "functions is not a list"),
        ('{"problem": "", "notes": [], "functions": [{"what_ifs": []}]}', "function is missing"),
        ("[" * 100_000, "is not what `kernelscope precision --json script.py` prints"),
    ],
)
def test_anything_else_is_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(RunError, match=says.replace("[", r"\[")):
        precision_of(tmp_path / "map.json")


def test_a_number_that_is_a_text(tmp_path: Path) -> None:
    form = _map()
    form["functions"][0]["kernels"][0]["error"]["median_ulp"] = "1"
    (tmp_path / "map.json").write_text(json.dumps(form))
    with pytest.raises(RunError, match="median_ulp is not a number"):
        precision_of(tmp_path / "map.json")


def test_a_file_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support.sample_runs import write_sample

    write_sample(tmp_path / "one.kscope")
    assert main(["report", str(tmp_path / "one.kscope"), "--precision", str(tmp_path / "no.json")]) == 2
    assert "no.json: No such file or directory" in capsys.readouterr().err
