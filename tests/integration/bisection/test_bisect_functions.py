"""Programs that torch.compile gets wrong, by class: each stays named under bisect, with step and line."""

from __future__ import annotations

import pytest
import torch
from tests.programs import wrong_functions as programs
from tests.programs import wrong_launches as launches
from tests.programs.wrong_functions import WRONG_FUNCTIONS, WrongFunction
from tests.programs.wrong_launches import LAYOUTS, STRIDES_OF_RESULTS, WRONG_LAUNCHES

import kernelscope
from kernelscope.bisection import BisectResult

SLOW = {programs.enlarges_pixels_smoothly}  # a kernel of a thousand lines
CHOSEN = [each for each in (*WRONG_FUNCTIONS, *WRONG_LAUNCHES) if each.by_inductor]


@pytest.mark.parametrize(
    "each", [pytest.param(e, id=str(e), marks=pytest.mark.slow if e.fn in SLOW else ()) for e in CHOSEN]
)
def test_the_step_is_named(each: WrongFunction) -> None:
    if not each.is_wrong():
        pytest.skip("this version of torch compiles it rightly")
    with each.plant():
        result = kernelscope.bisect(each.fn, each.arguments(), runs=2, workaround=False)
    assert result.cause is not None, str(result)
    assert _failure(each) in result.failure, str(result)
    assert_ends_at(each, result)


def _failure(each: WrongFunction) -> str:
    """The verdict, and the name in it: that of the operator, of the pass, of the kernel."""
    if each.kind == STRIDES_OF_RESULTS:  # no operator computes something wrong: the step alone is named
        return f"{each.by_inductor}: {each.step} "
    name = each.step.removeprefix("decomposition of ").removeprefix("pass ").partition(" (")[0]
    return f"{each.by_inductor}: {name} "


def assert_ends_at(each: WrongFunction, result: BisectResult) -> None:
    cause = result.cause
    assert cause is not None
    switch = cause.switches[0]
    if each.kind == LAYOUTS:  # the operator that gave the tensor its layout
        assert (cause.axis, switch.info["target"]) in LAYOUT_CHOSEN_BY, str(result)
    elif each.by_inductor == "wrong-kernel":
        assert (cause.axis, switch.info["kernel"]) == ("kernel", each.step), str(result)
        assert f"in {each.fn.__name__}" in switch.info["origin"]
    elif each.step.startswith("pass "):
        assert (cause.axis, switch.name.rpartition("/")[2]) == ("pass", "constant_fold_uniform_value"), str(
            result
        )
    elif each.fn is launches.puts_two:
        assert (cause.axis, switch.name) == ("decomposition", "aten.put.default"), str(result)
    elif each.fn is launches.adds_a_product:
        assert (cause.axis, switch.name) == ("backend", "aot_eager_decomp_partition"), str(result)
        assert switch.info["step"] == each.step, str(result)
    elif each.fn is programs.leaks:
        assert (cause.axis, switch.name) == ("decomposition", "aten.leaky_relu.default"), str(result)
    else:
        assert (cause.axis, switch.name) == ("backend", each.backend), str(result)
        assert switch.info["step"].partition(":")[0] == each.step, str(result)
        assert switch.info["origin"].endswith(f" in {each.fn.__name__}"), str(result)


@pytest.mark.parametrize("each", [e for e in WRONG_FUNCTIONS if e.kind == programs.GRADIENTS], ids=str)
def test_wrong_gradients_of_a_backend_stay_named(each: WrongFunction) -> None:
    """The backend is the program's own, and not Inductor."""

    def program() -> None:
        made = torch.compile(each.fn, backend=programs.wrong_gradients)(*each.arguments())
        made.square().sum().backward()

    result = kernelscope.bisect(program, compile=False, runs=2, workaround=False)
    assert result.cause is not None, str(result)
    assert result.failure == f"wrong-function: {each.fn.__name__} the gradient of x"
    [switch] = result.cause.switches
    assert (result.cause.axis, switch.name) == ("backend", "of the program"), str(result)
    assert switch.info["step"].startswith("the program's own backend"), str(result)
    assert switch.info["origin"].endswith(f" in {each.fn.__name__}"), str(result)


LAYOUT_CHOSEN_BY = [("lowering", "aten.clone.default"), ("lowering", "aten.sum.dim_IntList")]


def test_a_function_with_gapped_inputs_stays_wrong() -> None:
    """Copies of the arguments lie in memory as the arguments do."""
    each = next(e for e in WRONG_FUNCTIONS if e.fn is programs.reads_by_stride_after_adding)
    if not each.is_wrong():
        pytest.skip("this version of torch compiles it rightly")
    result = kernelscope.check_correctness(each.fn, *each.arguments())
    assert result.culprit is not None, str(result)
    assert result.culprit.step == "functionalization"
