"""Kernels in Helion, which makes Triton kernels of them: on Triton's interpreter, if Helion is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.fingerprint import fingerprint

helion = pytest.importorskip("helion")
hl: Any = pytest.importorskip("helion.language")


@helion.kernel(config=helion.Config(block_sizes=[16]), static_shapes=True)  # type: ignore[untyped-decorator]
def scaled_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2 + y[tile]
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]), static_shapes=True)  # type: ignore[untyped-decorator]
def increment(x: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] + 1


def test_names_roles_and_values() -> None:
    x, y = torch.randn(64), torch.randn(64)
    with kernelscope.record(values="hash") as run:
        out = scaled_sum(x, y)
        before = fingerprint(out).bits
        increment(out)
    first, second = run.calls
    torch.testing.assert_close(out, x * 2 + y + 1)
    assert (first.kind, first.producer) == ("triton", "user")
    assert (first.arg_names, first.roles) == (("x", "y", "out"), ("in", "in", "out"))
    assert first.post_hashes[2] == before
    assert second.roles == ("inout",)
    assert (second.pre_hashes[0], second.post_hashes[0]) == (before, fingerprint(out).bits)
    assert {call.origin.file for call in run.calls} == {__file__}
    assert not run.findings
