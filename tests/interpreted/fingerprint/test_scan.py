"""The kernel that looks for NaN and infinities, through Triton's interpreter on CPU memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelscope.fingerprint.cuda import nan_scan as scan
from kernelscope.fingerprint.cuda.kernels import nan_scan as scan_kernel

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2, torch.float8_e4m3fn,
    torch.float8_e4m3fnuz, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.fixture(autouse=True)
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_WORDS_A_PROGRAM", 64)
    monkeypatch.setattr(scan, "_PROGRAMS_AT_MOST", 3)


def scanned(
    tensors: list[torch.Tensor], wanted: int = scan.NAN, block: int = 32
) -> tuple[list[list[int]], bool]:
    rows = torch.zeros(len(tensors) * scan.ROW, dtype=torch.int64)
    flag = torch.zeros(1, dtype=torch.int32)
    found = [scan.piece_of(tensor) for tensor in tensors]
    batch, programs = scan.packed([piece for piece, _ in found])
    scan_kernel.scan[(programs,)](rows.data_ptr(), flag.data_ptr(), wanted, *batch, block, False)
    return rows.view(-1, scan.ROW).tolist(), bool(flag)


def counted(tensor: torch.Tensor) -> list[int]:
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    parts = torch.view_as_real(wide) if wide.is_complex() else wide
    return [int(f(parts).sum()) for f in (torch.isnan, torch.isposinf, torch.isneginf)]


def planted(dtype: torch.dtype, numel: int) -> torch.Tensor:
    torch.manual_seed(numel)
    values = torch.randn(numel) * 3
    for place, value in enumerate((math.nan, math.inf, -math.inf, math.nan, 448.0, -0.0)):
        values[(place * 7919 + numel - 1) % numel] = value
    return values.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("numel", [3, 1031])
def test_counts_are_exact(dtype: torch.dtype, numel: int) -> None:
    tensor = planted(dtype, numel)
    rows, raised = scanned([tensor], wanted=7)
    assert rows == [counted(tensor)]
    assert raised == any(counted(tensor))


def test_finite_tensors_leave_nothing() -> None:
    largest = [torch.finfo(d).max for d in (torch.float32, torch.float16, torch.bfloat16)]
    tensors: list[Any] = [
        torch.full((77,), largest[0]),
        torch.full((77,), -largest[1], dtype=torch.float16),
        torch.full((77,), largest[2], dtype=torch.bfloat16),
        torch.full((5,), 448.0).to(torch.float8_e4m3fn),
        torch.full((5,), 57344.0).to(torch.float8_e5m2),
        torch.zeros(0),
    ]
    rows, raised = scanned(tensors, wanted=7)
    assert rows == [[0, 0, 0]] * len(tensors)
    assert not raised


def test_masks_do_not_raise_the_flag() -> None:
    mask = torch.full((9, 9), -math.inf).triu(1)
    rows, raised = scanned([mask, torch.ones(3)], wanted=scan.NAN | scan.POS_INF)
    assert rows == [[0, 0, 36], [0, 0, 0]]
    assert not raised
    assert scanned([mask], wanted=scan.NEG_INF)[1]


def test_several_tensors_and_layouts() -> None:
    base = planted(torch.float32, 960).view(8, 10, 12)
    tensors = [base, base.permute(2, 0, 1), base[:, ::2], planted(torch.bfloat16, 99)[1:], base[..., 3:]]
    rows, _ = scanned(tensors)
    assert rows == [counted(tensor) for tensor in tensors]
