"""A program on the CPU against the same on a GPU: rounding raises no alarm, an error is named at its line."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

import kernelscope
from tests.programs import more_training_programs, other_training_programs, training_programs
from tests.programs.training_programs import Program, Setup

_MODULES = (training_programs, more_training_programs, other_training_programs)
_PLANTED = [(module, name) for module in _MODULES for name in module.PLANTED]
_HEALTHY: dict[str, Program] = more_training_programs.HEALTHY | {
    name: module.PLANTED[name] for module, name in _PLANTED
}
_SETUPS = {
    "float32": Setup(device="cuda"),
    "bfloat16": Setup(torch.bfloat16, device="cuda"),
    "autocast": Setup(autocast=True, device="cuda"),
    "compiled": Setup(compiled=True, device="cuda"),
}
_FUSED = {"recurrent"}  # by cuDNN
_IN_HALF_PRECISION = {"cast"}  # an error that float32 does not have
_QUICK = {"stale", "clamp", "variance", "experts", "large_logits", "residual"}


def _chosen(names: list[str]) -> list[object]:
    return [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("how", _SETUPS)
@pytest.mark.parametrize("name", _chosen(list(_HEALTHY)))
def test_rounding_raises_no_alarm(name: str, how: str) -> None:
    program = _HEALTHY[name]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_SETUPS[how], False))
    assert result.status == 0, result.details()
    # One kernel computes what the reference computes in many steps.
    least = 0.2 if _SETUPS[how].compiled or name in _FUSED else 0.5
    assert result.values["matched"] > least * result.values["reference"], result.details()


@pytest.mark.parametrize("name", _chosen(list(_HEALTHY)))
def test_rounding_of_the_cpu_raises_no_alarm(name: str) -> None:
    program = _HEALTHY[name]
    result = kernelscope.compare(lambda: program(_SETUPS["float32"], False), lambda: program(Setup(), False))
    assert result.status == 0, result.details()
    assert result.values["matched"] > result.values["reference"] / 2, result.details()


@pytest.mark.parametrize(
    ("module", "name", "how"),
    [
        each if each[1] in _QUICK else pytest.param(*each, marks=pytest.mark.slow)
        for each in ((*pair, how) for how in ("float32", "bfloat16") for pair in _PLANTED)
        if each[2] == "bfloat16" or each[1] not in _IN_HALF_PRECISION
    ],
)
def test_the_line_of_an_error_is_named(module: ModuleType, name: str, how: str) -> None:
    program = module.PLANTED[name]
    result = kernelscope.compare(lambda: program(Setup(), False), lambda: program(_SETUPS[how], True))
    assert result.status == 1, result.details()
    first = result.first
    assert first is not None
    named = [call for call in (first.call, first.reads, first.missing, first.reference) if call is not None]
    with open(str(module.__file__), encoding="utf-8") as text:
        planted = {number for number, line in enumerate(text, start=1) if f"# planted: {name}" in line}
    assert {call.origin[0].line for call in named if call.origin} & planted, result.details()
