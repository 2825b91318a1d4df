"""What is said of a setting that lets a library compute with fewer digits."""

from __future__ import annotations

import torch

import kernelscope
from kernelscope.comparison.result import ComparedCall, ComparisonResult, FewerDigits
from kernelscope.events import Frame


def test_text_and_json() -> None:
    call = ComparedCall(1, "aten.mm.default", "forward", (Frame("train.py", 9, "block"),))
    found = FewerDigits("tf32", "float32", call, call, 0.00029, 2)
    result = ComparisonResult(fewer_digits=[found], values={"matched": 1, "reference": 1}, calls={"other": 1})
    assert result.status == 0
    assert (
        "  setting    #1 aten.mm.default (forward) at train.py:9 in block computes in tf32, and the "
        "reference in float32: 0.00029 of its size (rms), the largest of 2 such calls"
    ) in str(result)
    (form,) = result.to_dict()["fewer_digits"]
    assert (form["digits"], form["reference_digits"], form["times"]) == ("tf32", "float32", 2)
    assert form["call"]["origin"] == [{"file": "train.py", "line": 9, "function": "block"}]


def test_a_setting_that_changes_nothing_is_not_mentioned() -> None:
    """The results differ in the order of additions at most, unless this CPU has products of bfloat16."""
    before = torch.get_float32_matmul_precision()

    def product(precision: str) -> object:
        def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            torch.set_float32_matmul_precision(precision)
            return x.cos() @ w

        return function

    torch.manual_seed(0)
    x, w = torch.randn(64, 256), torch.randn(256, 512)
    try:
        made = [product(each)(x, w) for each in ("highest", "medium")]  # type: ignore[operator]
        result = kernelscope.compare(product("highest"), product("medium"), (x, w))  # type: ignore[arg-type]
    finally:
        torch.set_float32_matmul_precision(before)
    is_coarse = bool((made[0] - made[1]).norm() > 1e-4 * made[0].norm())
    assert (result.status, len(result.fewer_digits)) == (0, int(is_coarse)), result.details()
