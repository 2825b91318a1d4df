"""A long recording stays small: most calls are notes, and a fingerprint is eight bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelscope

CALLS = 1_000_000
MOST = 500 << 20  # bytes on the host


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("values", ["off", "hash"])
def test_a_million_calls(values: str) -> None:
    @torch.compile
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = (x @ w).sin()
        return x

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    f(x, w)
    before = resident()
    with kernelscope.record(values=values) as run:
        while len(run) < CALLS:
            f(x, w)
        more = resident() - before
    print(f"\n{values}: {more / len(run):.0f} bytes a call")
    assert more < MOST
