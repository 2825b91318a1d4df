"""`diff --calibrate`: two runs on disk, of which the first is run again on the values of the second."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.programs import more_training_programs, training_programs
from tests.programs.training_programs import Setup
from tests.support.json_schemas import wrong_in

import kernelscope
from kernelscope.cli import main
from kernelscope.comparison.result import ComparisonResult

_LOW = Setup(torch.bfloat16)
_QUICK = {"stale"}


def _recorded(path: Path, program: Callable[[], Any], **how: Any) -> Path:
    with kernelscope.record(path=path, **({"values": "save", "ops": "all"} | how)):
        program()
    return path


def _compared(folder: Path, first: Callable[[], Any], second: Callable[[], Any]) -> ComparisonResult:
    runs = _recorded(folder / "first.kscope", first), _recorded(folder / "second.kscope", second)
    return kernelscope.diff(*runs, calibrate=True)


@pytest.mark.parametrize(
    "name",
    [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in training_programs.PLANTED],
)
def test_an_error_is_named_and_rounding_is_not(name: str, tmp_path: Path) -> None:
    program = training_programs.PLANTED[name]
    first = _recorded(tmp_path / "float32.kscope", lambda: program(Setup(), False))
    healthy = _recorded(tmp_path / "bfloat16.kscope", lambda: program(_LOW, False))
    result = kernelscope.diff(first, healthy, calibrate=True)
    assert result.status == 0, result.details()
    assert result.values["matched"] == result.values["reference"], result.details()

    wrong = _recorded(tmp_path / "wrong.kscope", lambda: program(_LOW, True))
    result = kernelscope.diff(first, wrong, calibrate=True)
    assert result.status == 1, result.details()
    assert result.first is not None
    first = result.first
    named = [first.call, first.reads, first.missing, first.reference, first.forward]
    with open(str(training_programs.__file__), encoding="utf-8") as text:
        planted = {i for i, line in enumerate(text, start=1) if f"# planted: {name}" in line}
    found = {each.origin[0].line for each in named if each is not None and each.origin}
    assert found & planted, result.details()
    call = kernelscope.load(wrong).calls[result.first.call.index]
    assert (call.kernel_name, call.stack) == (result.first.call.name, result.first.call.origin)


def test_an_error_in_a_backward_pass_has_the_forward_call(tmp_path: Path) -> None:
    """A run has the line of backward() for all that follows from it."""

    def program(detached: bool) -> None:
        torch.manual_seed(0)
        first, second = (torch.randn(8, 8).requires_grad_() for _ in range(2))
        hidden = torch.tanh(torch.randn(4, 8) @ first)
        given = hidden.detach() if detached else hidden
        gate = torch.sigmoid(given @ second)  # its gradient is missing
        (gate * hidden).square().sum().backward()

    result = _compared(tmp_path, lambda: program(False), lambda: program(True))
    assert result.first is not None, result.details()
    assert (result.first.call.phase, result.first.forward.phase) == ("backward", "forward")
    with open(__file__, encoding="utf-8") as text:
        line = next(i for i, each in enumerate(text, start=1) if "# its gradient is missing" in each)
    assert result.first.forward.origin[0].line == line, result.details()
    assert f"  forward    {result.first.forward}" in str(result)


def test_compiled_code_of_another_dtype_raises_no_alarm(tmp_path: Path) -> None:
    program, low = more_training_programs.HEALTHY["large_logits"], Setup(torch.bfloat16, compiled=True)
    result = _compared(tmp_path, lambda: program(Setup(), False), lambda: program(low, False))
    assert result.status == 0, result.details()
    assert result.values["matched"] == result.values["reference"], result.details()
    assert any("softmax" in each.call.name and each.gain > 8 for each in result.amplifiers), result.details()


def test_random_numbers_and_other_arguments(tmp_path: Path) -> None:
    """Dropout, lists of tensors, texts that choose, views, expanded tensors, a gather, and sizes."""

    def program(dtype: torch.dtype, approximate: str) -> None:
        torch.manual_seed(0)
        weight = torch.randn(24, 16).to(dtype)
        x = torch.randn(4, 24).to(dtype)
        hidden = torch.nn.functional.gelu(x @ weight, approximate=approximate)
        left, right = hidden.split(8, dim=1)
        joined = torch.cat([left * right, right.t().contiguous().t()], 1)
        dropped = torch.nn.functional.dropout(joined, 0.5)
        ones = torch.full((1, 16), 0.5, dtype=dtype).expand(4, 16)
        (dropped * ones).gather(1, torch.arange(16).flip(0).expand(4, 16)).exp().sum()

    low = lambda: program(torch.bfloat16, "none")  # noqa: E731
    result = _compared(tmp_path, lambda: program(torch.float32, "none"), low)
    assert result.status == 0, result.details()
    assert result.values["matched"] == result.values["reference"], result.details()
    assert result.notes == []


def test_random_numbers_that_the_second_run_does_not_have(tmp_path: Path) -> None:
    """What differs after them is nobody's error; what differs before them still is."""

    def program(draw: bool, factor: float = 2.0) -> None:
        torch.manual_seed(0)
        x = torch.linspace(1, 2, 32) * factor
        x * (torch.rand(32) if draw else torch.linspace(0, 1, 32))

    (tmp_path / "after").mkdir()
    result = _compared(tmp_path / "after", lambda: program(True), lambda: program(False))
    assert result.status == 2
    assert "the random numbers of call 2, aten.rand.default, of the reference" in result.problem
    (tmp_path / "before").mkdir()
    result = _compared(tmp_path / "before", lambda: program(True), lambda: program(False, 3.0))
    assert result.first is not None
    assert result.first.call.name == "aten.mul.Tensor"
    assert "was not judged" in str(result)


def test_what_no_recorded_call_wrote_is_read_from_the_run(tmp_path: Path) -> None:
    """Numpy changes the memory of a tensor between two calls."""

    def program(dtype: torch.dtype, scale: float) -> None:
        memory = torch.linspace(1, 2, 32)
        memory.mul_(3.0)
        memory.numpy()[:] += 1.0
        memory.to(dtype).mul(scale).exp()

    result = _compared(tmp_path, lambda: program(torch.float32, 0.5), lambda: program(torch.bfloat16, 0.5))
    assert result.status == 0, result.details()
    second = _recorded(tmp_path / "third.kscope", lambda: program(torch.bfloat16, 0.4))
    result = kernelscope.diff(tmp_path / "first.kscope", second, calibrate=True)
    assert result.first is not None
    assert result.first.call.name == "aten.mul.Tensor"


def test_an_operator_that_is_not_of_torch_is_noted(tmp_path: Path) -> None:
    @torch.library.custom_op("recorded_runs::shuffled", mutates_args=())
    def shuffled(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy()[::-1].copy())

    def program() -> None:
        shuffled(torch.linspace(0, 1, 32)).mul(2)

    result = _compared(tmp_path, program, program)
    assert any("is not an operator of ATen" in note for note in result.notes), result


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program(dtype: torch.dtype, scale: float) -> None:
        torch.manual_seed(0)
        torch.randn(8, 32).to(dtype).mul(scale).softmax(-1)

    first = str(_recorded(tmp_path / "first.kscope", lambda: program(torch.float32, 0.5)))
    other = str(_recorded(tmp_path / "other.kscope", lambda: program(torch.bfloat16, 0.7)))
    same = str(_recorded(tmp_path / "same.kscope", lambda: program(torch.bfloat16, 0.5)))
    assert main(["diff", "--calibrate", first, same]) == 0
    assert capsys.readouterr().out.startswith("rounding: it explains every difference\n")
    assert main(["diff", "--calibrate", first, other]) == 1
    assert "aten.mul.Tensor (forward)" in capsys.readouterr().out.splitlines()[0]
    assert main(["diff", "--calibrate", "--json", first, other]) == 1
    form = json.loads(capsys.readouterr().out)
    assert not wrong_in("diff", form)
    assert (form["first"]["call"]["name"], form["fails"]) == ("aten.mul.Tensor", True)
    assert main(["diff", "--calibrate", "--fail-on", "nothing", first, other]) == 0


def test_runs_that_lack_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> None:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8))

    good = _recorded(tmp_path / "good.kscope", lambda: torch.ones(8).mul(2))
    hashes = _recorded(tmp_path / "hashes.kscope", lambda: torch.ones(8).mul(2), values="hash")
    compiled = _recorded(tmp_path / "compiled.kscope", program)
    for pair, text in [
        ((good, hashes), "has no saved values, which calibrate needs; record both with: kernelscope run"),
        ((compiled, good), "record it without the compiler: TORCH_COMPILE_DISABLE=1 kernelscope run"),
    ]:
        assert main(["diff", "--calibrate", *map(str, pair)]) == 2
        assert text in capsys.readouterr().err
    with kernelscope.record(values="hash") as live:
        torch.ones(8).mul(2)
    with pytest.raises(kernelscope.RunError, match="calibrate needs runs on disk"):
        kernelscope.diff(live, good, calibrate=True)
