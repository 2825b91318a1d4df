"""`norm` against torch's own, and how much memory the passes over a tensor take."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.unit.fingerprint.references import DTYPES, NUMBERLESS, expected, norm, random_tensor

from kernelscope.fingerprint import (
    Fingerprinter,
    HashFailure,
)
from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint import torch_stats as stats_ops
from kernelscope.fingerprint.cpu import stats as cpu_stats
from kernelscope.fingerprint.stats import ROW_LENGTH

pytestmark = pytest.mark.usefixtures("_torch_operations_only")

# --- norm ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norm_is_as_torchs_own_or_says_that_there_is_none(dtype: torch.dtype) -> None:
    tensor = random_tensor(dtype, 24)
    taken = Fingerprinter(["bits", "norm"])
    seen_bits, seen_norm = taken.read(taken.take([tensor])[0])  # type: ignore[misc]
    assert seen_bits == expected(tensor)
    if NUMBERLESS.match(str(dtype).removeprefix("torch.")):
        assert isinstance(seen_norm, HashFailure)
        assert str(dtype) in seen_norm.message
        assert "use bits" in seen_norm.message
        return
    exact = tensor.to(torch.complex128 if dtype.is_complex else torch.float64)
    want = exact.norm(p=1).item()
    # The order of addition is ours, so the last digit may be.
    assert seen_norm == pytest.approx(want, rel=1e-15 * 24, nan_ok=True)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
def test_norm_of_any_layout(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(30, 40, dtype=torch.float64)
    z = torch.randn(30, 40, dtype=torch.complex64)
    monkeypatch.setattr(stats_ops, "PIECE", 128)
    if not compiled:
        monkeypatch.setattr(cpu_stats, "accumulate", lambda tensor: None)
    for tensor in (x, x.t(), x[1:, 3:], x.float(), x.bfloat16().t(), z, z.conj().t(), (x * 100).long()):
        exact = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        assert norm(tensor) == pytest.approx(exact.norm(p=1).item(), rel=1e-13)
        if not (compiled and tensor.is_conj()):  # a lazy one always goes through torch, its copy does not
            assert norm(tensor) == norm(tensor.clone(memory_format=torch.contiguous_format))
    assert norm(torch.zeros(0)) == 0.0


def test_norm_passes_nan_and_inf_and_keeps_large_integers() -> None:
    assert norm(torch.tensor([1.0, float("-inf")])) == float("inf")
    nan = norm(torch.tensor([1.0, float("nan")]))
    assert math.isnan(nan)
    assert nan == norm(torch.tensor([float("nan"), 2.0]))  # two hashes of the same are equal
    assert nan != 1.0
    assert nan != "nan"
    assert norm(torch.tensor([2**24 + 1])) == 2**24 + 1
    assert norm(torch.tensor([True, False, True])) == 2.0


# --- cost ---


def peak_temporaries(work: Any) -> int:
    """The most bytes that torch's CPU allocator held during `work`, beyond what it held before."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        work()
    held = most = 0
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


@pytest.mark.parametrize("layout", ["contiguous", "misaligned", "transposed", "conjugate", "expanded"])
def test_temporaries_are_bounded(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "CPU_CHUNK_BYTES", hashes.DEVICE_CHUNK_BYTES)
    base = torch.ones(8 << 20, dtype=torch.bfloat16)
    tensor = {
        "contiguous": lambda: base.repeat(4),
        "misaligned": lambda: base.repeat(4)[1:],
        "transposed": lambda: base.repeat(4).view(1 << 10, -1).t(),
        "conjugate": lambda: base.repeat(4).view(torch.complex64).conj(),
        "expanded": lambda: base.view(1, -1).expand(4, -1),
    }[layout]()
    assert tensor.numel() * tensor.itemsize > 60 << 20
    slot = torch.zeros(1, dtype=torch.int64)
    peak = peak_temporaries(lambda: hashes.sum_into(tensor, slot))
    # The lower bound shows that the allocations were seen at all.
    assert hashes.DEVICE_CHUNK_BYTES < peak < 48 << 20
    row = torch.zeros(ROW_LENGTH, dtype=torch.float64)
    part = tensor[: max(len(tensor) // 16, 1)]  # many pieces still
    assert part.numel() >= 4 * stats_ops.PIECE
    peak = peak_temporaries(lambda: stats_ops.stats_into(part, row))
    assert 8 * stats_ops.PIECE <= peak < 16 << 20
