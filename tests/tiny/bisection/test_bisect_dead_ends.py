"""Searches that name no kernel: the check, the program or the axis does not allow it."""

from __future__ import annotations

import pytest
from tests.tiny.bisection.made_up_compiler import bisected

from kernelscope.errors import RunError
from kernelscope.trials.outcome import RAISED, Outcome


def test_a_check_that_never_fails() -> None:
    result, compiler = bisected(lambda off, b: False)
    assert "did not fail in 3 baseline runs" in str(result)
    assert (result.status, len(compiler.trials)) == (2, 3)


def test_a_check_that_always_fails() -> None:
    result, compiler = bisected(lambda off, b: True)
    assert "fails with backend='eager' too" in str(result)
    assert "or the check always fails" in str(result)
    assert (result.status, len(compiler.trials)) == (2, 5)


def test_a_program_that_does_not_get_to_its_end() -> None:
    result, _ = bisected(lambda off, b: Outcome(RAISED, "KeyError: 'x'"))
    assert "KeyError: 'x'" in str(result)
    assert "--fails-on exception" in str(result)
    assert result.status == 2


def test_nothing_helps() -> None:
    result, _ = bisected(lambda off, b: b == "")
    assert result.cause is not None
    assert result.cause.axis == "backend"
    assert result.workaround == ('torch.compile(…, backend="aot_eager_decomp_partition")',)
    shadowed, _ = bisected(lambda off, b: True, check="shadow", axes=("pass", "lowering", "kernel"))
    assert "No cause was found" in str(shadowed)
    assert shadowed.status == 1


def test_what_shadow_finds_wrong_with_every_backend_is_dynamos() -> None:
    """With backend="eager" shadow compares the traced graph with the function, and nothing else."""
    result, _ = bisected(lambda off, b: True, check="shadow")
    assert result.cause is not None
    assert (result.cause.axis, result.cause.switches[0].name) == ("backend", "eager")
    assert "Dynamo" in str(result)
    assert (result.status, result.workaround) == (0, ())


def test_an_unknown_axis() -> None:
    with pytest.raises(RunError, match="no axis 'kernels'; use backend"):
        bisected(lambda off, b: True, axes=("kernels",))


def test_nothing_behind_the_decompositions_is_searched_when_they_fail() -> None:
    """With a backend that has only decompositions it fails: Inductor's passes and settings come later."""
    early = ("inductor", "aot_eager_decomp_partition")
    result, compiler = bisected(
        lambda off, backend: (backend or "inductor") in early and "aten.d3" not in off
    )
    assert str(result.cause) == "decomposition aten.d3"
    assert not {switch.axis for trial in compiler.trials for switch in trial.off} & {
        "pass",
        "config",
        "fusion",
    }


@pytest.mark.parametrize("first", ["aot_eager", "eager"])
def test_an_early_backend_ends_the_search(first: str) -> None:
    result, compiler = bisected(lambda off, backend: backend != "eager" or first == "eager")
    off = {switch.axis for trial in compiler.trials for switch in trial.off}
    assert off <= {"kernel"}
    if first == "eager":
        assert "fails with backend='eager' too" in result.problem
    else:
        assert str(result.cause) == "backend aot_eager"


def test_no_confidence_in_a_failure_that_was_not_seen() -> None:
    result, _ = bisected(lambda off, backend: False)
    assert result.status == 2
    assert "confidence" not in str(result)
