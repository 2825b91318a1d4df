"""Modes of the eager run: operators that trace functions while they run are left alone."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelscope.shadowing.regions.operator_modes import Noisy, Notes, Wide


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["notes", "noisy", "wide"])
def test_tensors_without_values_are_left_alone(kind: str) -> None:
    """flex_attention runs its score function on such tensors, and asks them for their device."""
    mode = {"notes": Notes(), "noisy": Noisy(torch.Generator()), "wide": Wide()}[kind]
    fake = FakeTensorMode()
    with fake:
        made = torch.ones(3, requires_grad=True)
    with mode:
        scaled, halved = (made - 1) * 0.25, made.to(torch.float16) + 1
        without_memory = torch.ones(2, device="meta") * 2
        assert made.device.type == "cpu"
    assert (scaled.dtype, halved.dtype) == (torch.float32, torch.float16)
    assert without_memory.dtype == torch.float32


def test_values_are_widened_beside_it() -> None:
    mode = Wide()
    with FakeTensorMode():
        traced = torch.ones(3)
    with mode:
        real = torch.ones(3, dtype=torch.float32) / 3
        assert (traced / 3).dtype == torch.float32
    assert real.dtype == torch.float64
