"""A value that was made by other operators is no difference if what is made of it agrees."""

from __future__ import annotations

import pytest
import torch

import kernelscope
from kernelscope.analysis.sharding.mismatch import Mismatch
from kernelscope.analysis.sharding.open_questions import OpenQuestions
from kernelscope.model.call import KernelCall


@pytest.fixture(scope="module")
def calls() -> dict[str, KernelCall]:
    x, bias = torch.randn(4, 4), torch.randn(4)
    with kernelscope.record(values="hash", ops="all") as run:
        product = torch.addmm(bias, x, x)
        copied = product.clone()
        copied.isnan()
        doubled = copied.mul(2)
        doubled.exp()
    names = ("addmm", "clone", "isnan", "mul", "exp")
    found = {call.kernel_name.split(".")[1]: call for call in run.calls}
    return {"isnan" if name == "ne" else name: call for name, call in found.items() if name in (*names, "ne")}


def asked(call: KernelCall) -> Mismatch:
    return Mismatch(call, [call, call], 0, "after", None, None)


def test_what_a_call_without_counterpart_made_is_open_until_a_call_agrees(
    calls: dict[str, KernelCall],
) -> None:
    questions = OpenQuestions()
    assert not questions.has(calls["clone"], 0)
    questions.made_alone(calls["addmm"])
    assert questions.has(calls["clone"], 0)
    questions.ask(asked(calls["clone"]))
    assert questions.has(calls["mul"], 0)
    questions.agrees(calls["mul"], {1, 2})
    assert not questions.has(calls["exp"], 0)
    unanswered, answered = questions.answers()
    assert unanswered is None
    assert [each.reference for each in answered] == [calls["clone"]]


def test_without_a_call_that_agrees_the_first_is_the_difference(calls: dict[str, KernelCall]) -> None:
    questions = OpenQuestions()
    questions.made_alone(calls["addmm"])
    for name in ("clone", "mul", "exp"):
        assert questions.has(calls[name], 0)
        questions.ask(asked(calls[name]))
    unanswered, answered = questions.answers()
    assert unanswered is not None
    assert unanswered.reference is calls["clone"]
    assert not answered


def test_one_reader_that_agrees_does_not_excuse_another_that_does_not(calls: dict[str, KernelCall]) -> None:
    """No element is NaN, whatever the values are."""
    questions = OpenQuestions()
    questions.made_alone(calls["addmm"])
    questions.ask(asked(calls["clone"]))
    questions.agrees(calls["isnan"], {1, 2})
    questions.ask(asked(calls["mul"]))
    unanswered, _ = questions.answers()
    assert unanswered is not None
    assert unanswered.reference is calls["clone"]
