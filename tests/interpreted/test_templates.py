"""The template of flex_attention through Triton's interpreter: its roles, its result, and a planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._inductor.kernel.flex.flex_attention as lowering
import torch.nn.attention.flex_attention as flex
from tests.integration.faults.planting import in_kernel

import kernelscope
from kernelscope import ShadowResult

pytestmark = pytest.mark.usefixtures("inductor_triton", "triton_template")

HEADS = [torch.randn(1, 1, 128, 16, generator=torch.Generator().manual_seed(i)) for i in range(3)]


@pytest.fixture
def triton_template() -> Iterator[None]:
    """The lowering of flex_attention takes a CPU for a GPU, and so writes its Triton template."""
    changed: list[tuple[Any, Any]] = []
    for function in (lowering.flex_attention, flex._validate_device, flex._apply_kernel_options):
        inner: Any = function
        while hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        changed.append((inner, inner.__code__))
        constants = tuple("none" if value == "cpu" else value for value in inner.__code__.co_consts)
        inner.__code__ = inner.__code__.replace(co_consts=constants)
    yield
    for inner, code in changed:
        inner.__code__ = code


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return flex.flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.015625, return_lse=True
    )


def shadowed() -> ShadowResult:
    with kernelscope.shadow() as result:
        torch.compile(attended)(*HEADS)
    return result


def test_flex_attention_is_judged() -> None:
    with kernelscope.record() as run:
        result = shadowed()
    assert not result, str(result)
    assert not [u for u in result.unchecked if not u.kernel_name.startswith(("stage", "function"))], str(
        result
    )
    [template] = [call for call in run.calls if "_tem_" in call.kernel_name]
    roles = dict(zip(template.arg_names, template.roles, strict=True))
    assert roles["arg_Q"] == roles["arg_KV_IDX"] == "in"
    assert roles["arg_LSE"] == roles["out_ptr0"] == "out"
    assert roles["arg_MAX"] == roles["arg_FULL_KV_IDX"] == "unused"


def test_a_fault_in_the_template_is_named() -> None:
    with in_kernel(
        r"SM_SCALE : tl\.constexpr = 0\.25", "SM_SCALE : tl.constexpr = 0.26", count=0
    )() as canary:
        result = shadowed()
    canary.assert_planted()
    assert result.culprit is not None, str(result)
    assert (result.culprit.verdict, result.culprit.kernel_name) == ("wrong-kernel", canary.kernels[0])
