"""What a result says: the first line for a person, the numbers on request, and the exit status."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pytest

from kernelscope import ShadowResult
from kernelscope.events import Frame
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.text.how_wrong import how_wrong
from kernelscope.shadowing.verdicts import VERDICTS, kind_of


def culprit(verdict: str = "wrong-kernel", index: int = 1) -> Culprit:
    numbers = {
        "compiled": 2.3,
        "eager": 1.3,
        "float64": 1.3000000019,
        "wrong": 12,
        "elements": 32,
        "gain": 0.1,
    }
    return Culprit(
        verdict, "elements have more error than rounding can explain", index, "cpp_fused_relu_0", "cpp",
        "in_out_ptr0", "buf1", "relu", where=(0, 3), numbers=numbers,
        origin=(Frame("train.py", 8, "forward"),),
    )  # fmt: skip


def clean() -> ShadowResult:
    result = ShadowResult()
    result.counts.launches = result.counts.buffers = 20
    result.counts.bytes = 1000
    return result


def test_the_first_line_says_where_what_and_how_wrong() -> None:
    result = clean()
    result.command = ["train.py", "--epochs", "1"]
    result.add(culprit())
    lines = str(result).splitlines()
    assert lines[0] == (
        "wrong-kernel: kernel #1 cpp_fused_relu_0 (cpp) at train.py:8 in forward is wrong: "
        "2.3 where eager has 1.3 (77 % off), in 12 of 32 elements"
    )
    assert any(re.match(r"  next +kernelscope bisect train.py --epochs 1  # ", line) for line in lines)
    assert any("kernelscope reduce train.py --epochs 1" in line for line in lines)
    assert not any("numbers" in line for line in lines)
    assert "numbers    wrong 12, elements 32, gain 0.1" in result.details()


@pytest.mark.parametrize(
    ("verdict", "kernel_name", "buffer", "tools"),
    [
        ("wrong-stage", "constant_fold_uniform_value", "joint", ["reduce"]),
        ("wrong-stage", "aten.addmm.default", "decomposition", ["reduce"]),
        ("wrong-stage", "", "functionalization", ["reduce"]),
        ("wrong-stage", "", "post-grad", ["bisect", "reduce"]),  # which pass it is, is not known
        ("wrong-function", "AOTAutograd", "forward", ["reduce"]),
        ("wrong-function", "Dynamo", "forward", ["report"]),
        ("wrong-function", "forward", "", ["bisect", "reduce"]),
        ("wrong-result", "call", "", ["bisect", "reduce"]),
    ],
)
def test_a_step_that_is_named_is_not_searched_for(
    verdict: str, kernel_name: str, buffer: str, tools: list[str]
) -> None:
    result = clean()
    result.command = ["train.py"]
    named = {"verdict": verdict, "kernel_name": kernel_name, "buffer": buffer, "kind": "stage"}
    result.add(dataclasses.replace(culprit(), **named))
    text = str(result)
    assert [tool for tool in ("bisect", "reduce", "report") if f" {tool} " in text] == tools, text


def test_without_a_script_the_next_step_is_python() -> None:
    result = clean()
    result.add(culprit())
    assert "kernelscope.bisect(fn, x)" in str(result)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"compiled": 2.0, "eager": 1.0}, "2 where eager has 1 (100 % off)"),
        ({"compiled": -1.5, "eager": 1.5}, "-1.5 where eager has 1.5 (the sign is wrong)"),
        ({"compiled": 1.0, "eager": 0.0}, "1 where eager has 0"),
        ({"compiled": 3e30, "eager": 1.0}, "3e+30 where eager has 1 (3e+30 times as large)"),
        ({"compiled": math.nan, "eager": 1.3}, "NaN where eager has 1.3"),
        ({"compiled": -math.inf, "eager": math.inf}, "-inf where eager has inf"),
        ({"compiled": 1.00001, "eager": 1.0}, "1.00001 where eager has 1 (wrong from digit 5 on)"),
        ({"compiled": 5, "eager": 4, "wrong": 1, "elements": 9}, "5 where eager has 4, in 1 of 9 elements"),
        ({"compiled": True, "eager": False, "wrong": 1, "elements": 1}, "True where eager has False"),
        ({"compiled": -0.0, "eager": 0.0}, "-0 where eager has 0"),
        ({"compiled": 1.0, "eager": 1.0, "bias": 0.012}, "all elements together are 1.2 % too large"),
        ({"max_abs_error": 1.0}, ""),
    ],
)
def test_how_wrong_in_words(numbers: dict[str, float], said: str) -> None:
    assert how_wrong(numbers) == said


def test_every_verdict_has_a_first_line_and_a_next_step() -> None:
    for name, kind in VERDICTS.items():
        result = clean()
        result.add(culprit(name))
        assert str(result).startswith(f"{name}: ")
        assert kind.sentence in str(result)
        assert "kernelscope." in str(result)
    assert kind_of("new-verdict").sentence


def test_an_earlier_cause_comes_first() -> None:
    result = clean()
    for i, verdict in enumerate(("wrong-kernel", "wrong-stage", "foreign-write")):
        result.add(Culprit(verdict, "why", i, f"kernel {i}", "cpp", "out"))
    assert [c.verdict for c in result] == ["wrong-stage", "wrong-kernel", "foreign-write"]


def test_our_own_failure_is_never_a_clean_bill() -> None:
    result = clean()
    assert result.status == 0
    try:
        raise KeyError("primals_3")
    except KeyError as error:
        result.fail("cpp_fused_0", error)
        result.fail("cpp_fused_0", error)
    assert result.status == 2
    sentence = "kernelscope itself failed 2 times, first at cpp_fused_0: KeyError: 'primals_3'"
    assert sentence in result.problem
    assert sentence in str(result)
    assert "--verbose" in str(result)
    assert "Traceback" not in str(result)
    assert "Traceback" in result.details()
    (failure,) = json.loads(result.to_json())["failures"]
    assert (failure["where"], failure["times"]) == ("cpp_fused_0", 2)
    assert "Traceback" in failure["traceback"]


def test_all_of_nothing_is_not_judged() -> None:
    result = ShadowResult()
    assert result.status == 2
    assert "Judged" not in str(result)
    result.counts.launches = 1
    assert "Judged: 100 % of launches." in str(result)


def test_what_is_wrong_stays_wrong_where_we_failed_too() -> None:
    result = clean()
    result.add(culprit())
    result.fail("cpp_fused_0", "an assertion")
    assert result.status == 1
    assert "kernelscope itself failed at cpp_fused_0: an assertion" in str(result)


def test_a_clean_bill_says_what_it_means() -> None:
    result = clean()
    assert "Nothing wrong: no kernel has more error" in str(result)
    assert "20 launches of 0 graphs" in str(result)
    result.counts.launches = result.counts.graphs = result.counts.regions = 1
    text = str(result)
    assert text.startswith(
        "Nothing wrong: the compiled program computes what the uncompiled one does, and no kernel"
    )
    assert "1 launch of 1 graph: 20 buffers checked" in text
    assert "1 compiled function compared with eager" in text
    result.counts.regions, result.counts.traced_regions = 3, 1
    assert "does, or in 1 function what Dynamo traced, and no kernel" in str(result)
    assert "3 compiled functions compared with eager, 1 of them as Dynamo traced them" in str(result)
    result.counts.traced_regions = 3
    assert str(result).startswith("Nothing wrong: the compiled program computes what Dynamo traced, and no")
    result.counts.arbitrary = 1
    assert "Left out of that comparison: 1 result affected by random numbers" in str(result)


@pytest.mark.parametrize(
    ("launches", "unjudged_bytes", "status"), [(0, 0, 0), (2, 0, 0), (3, 0, 2), (0, 100, 0), (0, 200, 2)]
)
def test_too_little_judged_is_inconclusive(launches: int, unjudged_bytes: int, status: int) -> None:
    """Nine tenths of the launches, and of the bytes that they leave, have to be judged."""
    result = clean()
    result.counts.unjudged_launches, result.counts.unjudged_bytes = launches, unjudged_bytes
    assert result.status == status
    assert bool(result.problem) == (status == 2)
    judged = json.loads(result.to_json())["judged"]
    assert judged["launches"] == (20 - launches) / 20
    assert judged["bytes"] == 1000 / (1000 + unjudged_bytes)
    assert f"{100 * judged['launches']:.3g} % of launches" in str(result)
