"""Hash functions of DebugMode: which count, what a failing one does, what has no hash."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelscope.debug_mode import DebugMode
from kernelscope.fingerprint import fingerprint


def test_hash_functions() -> None:
    x = torch.tensor([1.0, -2.0])
    with DebugMode() as mode:
        with DebugMode.log_tensor_hashes():
            x.neg()
        with DebugMode.log_tensor_hashes("bits"):
            x.neg()
        with DebugMode.log_tensor_hashes("hash_tensor"):
            x.neg()
        with DebugMode.log_tensor_hashes(["norm", "bits", lambda t: "text"]):
            x.neg()
        x.neg()
    bits = fingerprint(-x).bits
    hashes = [c.log.get("hash") for c in mode.run.calls]
    assert hashes == [3.0, bits, bits, (3.0, bits, "text"), None]


def test_innermost_hash_function_counts_and_is_restored() -> None:
    x = torch.ones(2)
    with DebugMode() as mode, DebugMode.log_tensor_hashes(lambda t: "outer", hash_inputs=True):
        x.neg()
        with DebugMode.log_tensor_hashes(lambda t: "inner"):
            x.neg()
        x.neg()
    assert [c.log["hash"] for c in mode.run.calls] == ["outer", "inner", "outer"]
    assert ["input_hash" in line for line in mode.debug_string().splitlines()] == [True, False, True]


def test_requests_hold_for_modes_opened_inside_and_for_all_open_ones() -> None:
    x = torch.ones(2)
    with (
        DebugMode() as outer,
        DebugMode.log_tensor_hashes(),
        DebugMode.record_outputs(),
        DebugMode() as inner,
    ):
        x.neg()
    assert [c.log["hash"] for c in outer.run.calls] == [2.0]
    assert [c.log["hash"] for c in inner.run.calls] == [2.0]
    assert torch.equal(inner.run.calls[0].record["output"], -x)


@pytest.mark.parametrize("wrong", ["bogus", ["norm", "bogus"], 3, [], [3], None])
def test_unknown_hash_function_is_refused_on_entry(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown hash function; use one of 'bits', 'hash_tensor', 'norm'"):
        DebugMode.log_tensor_hashes(wrong)


def _raises(tensor: torch.Tensor) -> float:
    raise KeyError("no such thing")


def _returns_a_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


@pytest.mark.parametrize(
    ("function", "said"),
    [(_raises, "KeyError: 'no such thing'"), (_returns_a_tensor, "returned a tensor of shape (2,)")],
)
def test_failing_hash_function_does_not_stop_the_program(function: Any, said: str) -> None:
    x = torch.ones(2)
    with DebugMode() as mode, DebugMode.log_tensor_hashes(["norm", function]):
        y = x.neg()
        y.neg()
    assert torch.equal(y, -x)
    for call in mode.run.calls:
        norm, failure = call.log["hash"]
        assert norm == 2.0
        assert said in str(failure)
    assert said in mode.debug_string()
    [finding] = mode.run.findings  # once, not for every tensor
    assert finding.kind == "hash-failed"
    assert said in finding.message


def test_hash_functions_work_is_not_listed() -> None:
    with DebugMode() as mode, DebugMode.log_tensor_hashes(lambda t: t.abs().sum().item()):
        torch.ones(2).neg()
    assert [c.kernel_name for c in mode.run.calls] == ["aten.ones.default", "aten.neg.default"]


def test_uninitialised_output_has_no_hash_before() -> None:
    out = torch.empty(4)
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        fresh = torch.empty(4)
        torch.add(torch.ones(4), 1, out=fresh)
        torch.add(torch.ones(4), 1, out=out)  # was born outside: its contents may mean something
    first, second = mode.run.select(kernel="aten.add.out")
    assert first.pre_hashes == {0: 4.0}
    assert first.post_hashes[first.arg_names.index("out")] == 8.0
    assert second.arg_names.index("out") in second.pre_hashes
