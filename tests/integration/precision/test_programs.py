"""Precision maps of eager functions and of scripts, and what they refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from tests.support.json_schemas import wrong_in

from kernelscope import precision_map
from kernelscope.cli import main

SCRIPT = """
import torch

@torch.compile
def scaled(x):
    return x.exp() * 3

for _ in range(2):
    print(scaled(torch.linspace(0, 1, 64)).shape)
"""


def test_eager_operators_are_measured_and_rounded() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(32, 32), torch.randn(16, 32)

    def waves(x: torch.Tensor) -> torch.Tensor:
        return torch.dropout(x, 0.5, True).mm(weight).mul_(1000).sin_()

    found = precision_map(waves, x, ops="all", formats=["bfloat16"])
    by_name = {kernel.kernel_name: kernel for kernel in found.kernels}
    product = by_name["aten.mm.default"]
    assert product.error is not None
    assert 0 < product.error.relative < 1e-6
    assert by_name["aten.sin_.default"].error is not None
    random = next(kernel for name, kernel in by_name.items() if "dropout" in name or "bernoulli" in name)
    assert random.reason == "it draws random numbers"
    (tried,) = found.what_ifs
    assert tried.is_kept
    assert any("sin_" in label for label in tried.chosen)
    assert any("mm" in label for label in tried.refused)


def test_a_program_under_autocast_is_tried_in_float32() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(32, 32), torch.randn(16, 32)

    def waves(x: torch.Tensor) -> torch.Tensor:
        return (model(x) * 1000).sin()

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = precision_map(waves, x, ops="all", formats=[])
    assert any("bfloat16" in kernel.dtypes for kernel in found.kernels)
    (tried,) = found.what_ifs
    assert (tried.program, tried.format, tried.is_kept) == ("in float32", "bfloat16", True)
    assert any("addmm" in label for label in tried.refused)
    assert any("sin" in label for label in tried.chosen)


def test_a_function_that_varies_by_itself_gets_no_promise() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * float(1 + os.urandom(1)[0])

    found = precision_map(noisy, torch.ones(4), ops="all", formats=["bfloat16"], tolerance=0.0)
    for _ in range(20):  # two bytes may be the same
        if found.noise:
            break
        found = precision_map(noisy, torch.ones(4), ops="all", formats=["bfloat16"], tolerance=0.0)
    assert found.status == 2
    assert not found.promises
    assert "two runs of the unchanged program differ by" in found.problem


def test_arguments_and_modules_are_put_back() -> None:
    norm, x = torch.nn.BatchNorm1d(4), torch.randn(8, 4)
    before, seed = x.clone(), torch.initial_seed()
    precision_map(norm, x, ops="all", formats=["bfloat16"])
    assert torch.equal(x, before)
    assert norm.num_batches_tracked == 0
    assert (norm.running_mean == 0).all()
    assert torch.initial_seed() == seed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tolerance": -1.0}, "give a relative error of at least 0"),
        ({"tolerance": float("nan")}, "give a relative error of at least 0"),
        ({"tolerance": "0.1"}, "give a relative error of at least 0"),
        ({"formats": ["float7"]}, "give a list with some of float16, bfloat16"),
        ({"formats": "bfloat16"}, "give a list with some of"),
        ({"ops": "some"}, "give 'graph' or 'all'"),
        ({"output": [""]}, "give globs of outputs, such as 'result \\*'"),
    ],
)
def test_what_is_refused_is_a_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        precision_map(torch.sin, torch.ones(2), **options)  # type: ignore[arg-type]


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(TypeError, match="fn must be callable, not 3"):
        precision_map(3, torch.ones(2))  # type: ignore[arg-type]
    unknown = precision_map(torch.sin, torch.ones(2), ops="all", output="loss")
    assert unknown.status == 2
    assert unknown.problem == "no output of the function was chosen; it has result 0"
    nothing = precision_map(lambda x: None, torch.ones(2), ops="all")
    assert nothing.problem == "no output of the function was chosen; it has none: it returns no tensor"
    whole = precision_map(lambda x: x + 1, torch.ones(2, dtype=torch.int64), ops="all")
    assert (whole.status, whole.problem) == (2, "no kernel leaves floating-point values")
    note = "Complex results are not measured or rounded: aten._fft_r2c.default"
    partly = precision_map(lambda x: torch.fft.rfft(x).abs(), torch.ones(8), ops="all", formats=[])
    assert ([kernel.kernel_name for kernel in partly.kernels], partly.notes) == (["aten.abs.default"], [note])
    unreal = precision_map(torch.fft.rfft, torch.ones(8), ops="all", formats=[])
    assert unreal.problem == "no kernel leaves floating-point values that are not complex"
    double = precision_map(lambda x: x + 1, torch.ones(2, dtype=torch.float64), ops="all", formats=[])
    assert double.problem == "no kernel could be measured: float64 has no more digits than float64"


def test_nothing_is_promised_about_results_that_are_not_numbers() -> None:
    def lost(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x - 10).log(), x * 3

    both = precision_map(lost, torch.rand(8), ops="all", formats=["bfloat16"])
    assert both.status == 0
    assert any("No promise concerns result 0" in note for note in both.notes)
    one = precision_map(lost, torch.rand(8), ops="all", formats=["bfloat16"], output="result 0")
    assert one.status == 2
    assert not one.promises
    assert "result 0 of the unrounded program: NaN or infinite in every element" in one.problem
    large = precision_map(lambda x: x.half() * 3e4 * 3, torch.rand(8) + 1, ops="all", formats=["bfloat16"])
    assert large.status == 1
    assert not str(large).startswith("inconclusive")


def test_a_promise_is_about_at_least_one_kernel() -> None:
    found = precision_map(lambda x: x * 3, torch.rand(8), ops="all", formats=["bfloat16"], tolerance=0.0)
    assert [each.chosen for each in found.what_ifs] == [[]]
    assert not found.promises


def test_the_compiled_functions_of_a_script(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert main(["precision", "--json", "--format", "bfloat16", str(script)]) == 0
    form = json.loads(capfd.readouterr().out)
    assert wrong_in("precision", form) == []
    (function,) = form["functions"]
    assert function["function"] == "scaled"
    assert function["kernels"][0]["origin"][0]["line"] == 6
    assert function["what_ifs"][0]["is_kept"]
    assert function["what_ifs"][0]["chosen"] == [f"#0 {function['kernels'][0]['kernel_name']}"]


def test_scripts_without_anything_to_measure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "plain.py"
    script.write_text("print(1)")
    assert main(["precision", str(script)]) == 2
    assert "the script called no compiled function; --ops all measures" in capfd.readouterr().err
    script.write_text("raise SystemExit(3)")
    assert main(["precision", str(script)]) == 2
    assert "the script failed: it exited with 3" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        main(["precision", "--tolerance", "much", str(script)])
    assert "'much' is not a number" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        main(["precision", "--tolerance", "-1", str(script)])
    assert "give a relative error of at least 0" in capfd.readouterr().err
