"""check_hash_mismatches: stock's results where stock has any, entries instead of errors elsewhere."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._debug_mode import DebugMode as StockDebugMode

from kernelscope.debug_mode import DebugMode, KernelCall
from kernelscope.debug_mode.mismatches import relative_difference

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])


def program(scale: float) -> None:
    y = X.mul(scale)
    torch.var_mean(y)
    torch.cat([X, y])
    torch.add(X, y, alpha=2)


def logs(what: Callable[[], Any], mode_class: Any = DebugMode, **hashing: Any) -> list[Any]:
    with mode_class() as mode, mode_class.log_tensor_hashes(**hashing):
        what()
    return list(mode.logs)


def stock_keys(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if k != "difference"}


@pytest.mark.parametrize("compare_inputs", [False, True])
def test_same_entries_as_stock(compare_inputs: bool) -> None:
    def mismatches(mode_class: Any) -> list[dict[str, Any]]:
        pair = [logs(lambda s=s: program(s), mode_class, hash_inputs=True) for s in (1.0, 1.5)]
        return list(mode_class.check_hash_mismatches(*pair, compare_inputs=compare_inputs))

    def order(entry: dict[str, Any]) -> tuple[str, bool, str]:
        return entry["call"], entry["is_input_hash"], entry["pytree_path"]

    ours, stock = mismatches(DebugMode), mismatches(StockDebugMode)
    assert ours
    assert sorted(map(stock_keys, ours), key=order) == sorted(stock, key=order)


def test_equal_runs_have_none() -> None:
    assert DebugMode.check_hash_mismatches(logs(lambda: program(2)), logs(lambda: program(2)), True) == []


def test_inputs_come_before_outputs() -> None:
    found = DebugMode.check_hash_mismatches(
        logs(lambda: (X * 2).exp()), logs(lambda: (X * 3).exp()), compare_inputs=True
    )
    assert [(m["call"], m["is_input_hash"]) for m in found] == [
        ("aten::mul.Tensor", False),
        ("aten::exp", True),
        ("aten::exp", False),
    ]


def test_nan_equals_nan() -> None:
    nan = torch.tensor([math.nan, 1.0])
    assert DebugMode.check_hash_mismatches(logs(lambda: nan.neg()), logs(lambda: nan.neg()), True) == []
    [found] = DebugMode.check_hash_mismatches(logs(lambda: nan.neg()), logs(lambda: X.neg()))
    assert math.isnan(found["rel_diff"])


def test_bits_see_what_the_norm_does_not() -> None:
    def mismatches(hash_fn: str) -> int:
        runs = [logs(lambda t=t: t.neg(), hash_fn=hash_fn) for t in (X, -X)]
        return len(DebugMode.check_hash_mismatches(*runs))

    assert (mismatches("norm"), mismatches("bits")) == (0, 1)


def test_structure_may_differ() -> None:
    found = DebugMode.check_hash_mismatches(
        logs(lambda: X.mul(2).exp().sum()), logs(lambda: X.mul(2).cos().exp().sum())
    )
    assert found[0]["call"] == "aten::cos"
    assert found[0]["difference"] == "only in the second run, at position 1"
    assert [(m["call"], m["difference"]) for m in found[1:]] == [
        ("aten::exp", "the hashes differ"),
        ("aten::sum", "the hashes differ"),
    ]
    keys = {"call_type", "call", "arg_name", "pytree_path", "hash1", "hash2", "rel_diff", "is_input_hash"}
    assert all(m.keys() == keys | {"difference"} for m in found)


def test_one_run_without_hashes() -> None:
    with DebugMode() as bare:
        X.neg()
    [found] = DebugMode.check_hash_mismatches(bare.logs, logs(lambda: X.neg()))
    assert found["difference"] == "only the second run has hashes of this call"
    assert DebugMode.check_hash_mismatches(bare.logs, bare.logs) == []


def test_different_hash_functions() -> None:
    [found] = DebugMode.check_hash_mismatches(
        logs(lambda: X.neg(), hash_fn="norm"), logs(lambda: X.neg(), hash_fn="bits")
    )
    assert found["difference"] == "the runs used different hash functions"


def test_empty_listings() -> None:
    assert DebugMode.check_hash_mismatches([], []) == []
    [found] = DebugMode.check_hash_mismatches([], logs(lambda: X.neg()))
    assert found["difference"] == "only in the second run, at position 0"


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [(1.0, 2.0, 0.5), (0, 0, 0.0), (3, -3, 2.0), ((1.0, 10), (1.0, 5), 0.5), (1 + 0j, 1j, math.sqrt(2))],
)
def test_relative_difference(a: Any, b: Any, wanted: float) -> None:
    assert relative_difference(a, b) == pytest.approx(wanted)


@pytest.mark.parametrize(("a", "b"), [("x", "y"), (1.0, None), (math.nan, 1.0), (1.0, (1.0, 2.0))])
def test_what_is_no_number_has_no_relative_difference(a: Any, b: Any) -> None:
    assert math.isnan(relative_difference(a, b))


def nan_program(scale: float) -> None:
    torch.cat([torch.tensor([math.nan, math.inf]) * scale, X.flatten()])
    (X * torch.complex(X, X) * scale).sum()
    torch.empty(2).fill_(scale)


@pytest.mark.parametrize("hash_fn", ["norm", "bits", ["norm", "bits"], lambda t: complex(t.sum().item())])
def test_saved_listings_are_compared_as_the_ones_they_were_made_of(hash_fn: Any, tmp_path: Path) -> None:
    pair = [logs(lambda s=s: nan_program(s), hash_fn=hash_fn) for s in (1.0, 1.5)]
    read = []
    for number, listing in enumerate(pair):
        DebugMode.save_logs(listing, tmp_path / f"{number}.json")
        read.append(DebugMode.load_logs(tmp_path / f"{number}.json"))
    for compare_inputs in (False, True):
        expected = DebugMode.check_hash_mismatches(*pair, compare_inputs=compare_inputs)
        assert expected
        assert repr(DebugMode.check_hash_mismatches(*read, compare_inputs=compare_inputs)) == repr(expected)
    assert DebugMode.check_hash_mismatches(pair[0], read[0], compare_inputs=True) == []
    assert [str(entry.call_depth) + entry.name for entry in read[0]] == [
        str(e.call_depth) + (e.kernel_name if isinstance(e, KernelCall) else e.name) for e in pair[0]
    ]


def test_a_listing_is_saved_to_an_open_file() -> None:
    listing, file = logs(lambda: program(2)), io.StringIO()
    DebugMode.save_logs(listing, file)
    file.seek(0)
    assert DebugMode.check_hash_mismatches(listing, DebugMode.load_logs(file)) == []


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{}", '{"format": "other", "version": 1, "logs": []}', "[" * 100_000],
)
def test_what_is_not_a_listing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a listing of"):
        DebugMode.load_logs(io.StringIO(text))


@pytest.mark.parametrize("change", [{"post": {"9": 1}}, {"pre": 3}, {"call_depth": "x"}, {"post": {"0": {}}}])
def test_a_damaged_listing_names_the_entry(change: dict[str, Any]) -> None:
    file = io.StringIO()
    DebugMode.save_logs(logs(lambda: program(2)), file)
    data = json.loads(file.getvalue())
    data["logs"][1] |= change
    with pytest.raises(ValueError, match="is damaged: entry 1"):
        DebugMode.load_logs(io.StringIO(json.dumps(data)))


def test_other_structure_is_refused_where_stock_refuses_it() -> None:
    two, three = logs(lambda: X * 2), logs(lambda: (X * 2).exp())
    with pytest.raises(ValueError, match="Log lengths don't match: 1 vs 2"):
        DebugMode.check_hash_mismatches(two, three, align=False)
    with pytest.raises(ValueError, match=r"Operators don't match at index 0: .*Tensor vs aten::exp"):
        DebugMode.check_hash_mismatches(logs(lambda: X * 2), logs(lambda: X.exp()), align=False)
    assert DebugMode.check_hash_mismatches(two, three)
