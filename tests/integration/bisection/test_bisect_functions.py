"""A function that is wrong as a whole stays named under bisect: the first failing backend tells the step."""

from __future__ import annotations

import pytest
from tests.programs import wrong_functions as programs
from tests.programs.wrong_functions import WRONG_FUNCTIONS, WrongFunction

import kernelscope

QUICK = {programs.makes_a_tensor_of_a_size}
CHOSEN = [
    each
    for each in WRONG_FUNCTIONS
    if each.kind in (programs.GAPS, programs.STRIDES, programs.OPERATORS, programs.DYNAMO)
    and each.plant is programs.nullcontext
]


@pytest.mark.parametrize(
    "each",
    [pytest.param(e, id=str(e), marks=() if e.fn in QUICK else pytest.mark.slow) for e in CHOSEN],
)
def test_the_step_is_named(each: WrongFunction) -> None:
    result = kernelscope.bisect(each.fn, each.arguments(), runs=2, workaround=False)
    if result.problem:
        pytest.skip("this version of torch compiles it rightly")
    assert result.cause is not None, str(result)
    assert result.cause.axis in ("backend", "decomposition"), str(result)
    if each.kind == programs.DYNAMO:
        assert "step       Dynamo" in str(result)
