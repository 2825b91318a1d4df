"""Modes of the eager run: operators that trace functions while they run are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import create_block_mask

from kernelscope.shadowing.regions.modes.operator_modes import Noisy, Notes
from kernelscope.shadowing.regions.modes.wide_mode import Wide


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


def test_attention_in_bfloat16_with_a_captured_float_rounds_like_bfloat16() -> None:
    """An operator that runs functions of the program has the dtype of its query, and each result its own."""
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 32, 32, device="cpu").as_tuple()

    def attention(generator: torch.Generator | None) -> list[torch.Tensor]:
        mode = Wide(generator)
        heads = [torch.randn(1, 2, 32, 16, generator=torch.Generator().manual_seed(i)) for i in range(3)]
        rounded = [each.to(torch.bfloat16).double() for each in heads]
        for each in rounded:
            mode.learn(each, torch.bfloat16)
        slopes = torch.tensor([0.5, 0.25], dtype=torch.float64)
        mode.learn(slopes, torch.float32)

        def falls_off(score: Any, b: Any, h: Any, i: Any, j: Any, slopes: Any) -> Any:
            return score - slopes[h] * (i - j).abs()

        with mode:
            made = torch.ops.higher_order.flex_attention(*rounded, falls_off, mask, 0.25, {}, (slopes,))[:2]
        assert [mode.dtype_of(each) for each in made] == [torch.bfloat16, torch.float32]
        return [each.clone() for each in made]

    exact, moved = attention(None), attention(torch.Generator().manual_seed(1))
    share = [((a - b).abs() / a.abs()).median().item() for a, b in zip(exact, moved, strict=True)]
    assert 2**-12 < share[0] < 2**-5, share
    assert share[1] > 2**-16, share  # its query and key had errors


def test_each_result_of_a_custom_operator_keeps_its_own_dtype() -> None:
    @torch.library.custom_op("ks_tests::normed", mutates_args=())
    def normed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.float().norm(dim=-1)
        return (x / scale[:, None]).to(x.dtype), scale

    mode = Wide(torch.Generator().manual_seed(0))
    x = torch.linspace(1, 2, 32, dtype=torch.float64).reshape(4, 8)
    mode.learn(x, torch.bfloat16)
    with mode:
        made = normed(x)
    assert [each.dtype for each in made] == [torch.float64, torch.float64]
    assert [mode.dtype_of(each) for each in made] == [torch.bfloat16, torch.float32]
