"""flex_attention in the C++ template of torch, on CPUs that it supports: judged, no alarm, faults named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.integration.faults.planting import Plant, in_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import kernelscope
from kernelscope import ShadowResult

Attention = Callable[..., torch.Tensor]


def with_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.015625)  # type: ignore[return-value]


def with_a_window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 100), None, None, 256, 256, device="cpu")
    made = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    return made.transpose(1, 2).flatten(2)  # type: ignore[union-attr]


def shadowed(
    attention: Attention,
    *sizes: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    is_wrong: bool = False,
) -> ShadowResult:
    given = [torch.randn(size, dtype=dtype) for size in sizes]
    bare = compiled(attention, given) if not is_wrong else None  # the first kernel gets the fault
    with kernelscope.shadow() as result:
        made = compiled(attention, given)
    assert bare is None or torch.equal(made, bare)
    return result


def compiled(attention: Attention, given: list[torch.Tensor]) -> torch.Tensor:
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            return torch.compile(attention)(*given)
    except Exception as error:
        pytest.skip(f"torch does not compile flex_attention for this CPU: {type(error).__name__}")


def is_judged(result: ShadowResult) -> bool:
    return result.status == 0 and not result.unchecked and result.counts.buffers > 0


def test_a_score_function_gives_no_alarm() -> None:
    result = shadowed(with_scores, *[(1, 2, 64, 32)] * 3)
    assert is_judged(result), str(result)


@pytest.mark.slow
def test_a_block_mask_gives_no_alarm() -> None:
    result = shadowed(with_a_window, (1, 4, 256, 16), (1, 2, 256, 16), (1, 2, 256, 16))
    assert is_judged(result), str(result)


@pytest.mark.slow
def test_one_query_in_half_precision_gives_no_alarm() -> None:
    result = shadowed(with_scores, (1, 2, 1, 32), *[(1, 2, 128, 32)] * 2, dtype=torch.bfloat16)
    assert is_judged(result), str(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        in_kernel(r"(\w*scaling_factor\w* = )([^;]+);", r"\1(\2) * 1.05;", count=1),
        in_kernel(r"0\.015625", "0.03125", count=0),
    ],
    ids=["scale", "score"],
)
def test_a_fault_in_the_template_is_named(plant: Plant) -> None:
    with plant() as canary:
        result = shadowed(with_scores, *[(1, 2, 64, 32)] * 3, is_wrong=True)
    canary.assert_planted()
    assert result.culprit is not None, str(result)
    assert result.culprit.verdict == "wrong-kernel"
    assert "flex_attention" in result.culprit.kernel_name, str(result)
