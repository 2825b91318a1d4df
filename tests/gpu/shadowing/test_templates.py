"""Templates on a GPU: flex_attention, products and convolutions, each judged, and a fault in each named."""

# ruff: noqa: E501  # one program, one line
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor.select_algorithm as select
from tests.integration.faults.planting import Plant, in_kernel
from torch import nn
from torch._inductor.utils import fresh_cache
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import kernelscope
from kernelscope import ShadowResult

Program = Callable[..., Any]
MAX = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON", "max_autotune_conv_backends": "TRITON"}


@pytest.fixture(autouse=True)
def few_choices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Which configuration is fastest does not matter here."""
    original: Any = select.AlgorithmSelectorCache.__call__

    def call(self: Any, name: str, choices: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, name, list(choices)[:1], *args, **kwargs)

    monkeypatch.setattr(select.AlgorithmSelectorCache, "__call__", call)
    yield
    torch._dynamo.reset()


def data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(len(shape))).to(
        dtype
    )


def shadowed(fn: Program, args: list[torch.Tensor], *, backward: bool, **options: Any) -> ShadowResult:
    torch._dynamo.reset()
    with fresh_cache(), kernelscope.shadow() as result:
        made = torch.compile(fn, options=options or None)(*(a.clone().requires_grad_(backward) for a in args))
        if backward:
            made.float().square().sum().backward()
        torch.cuda.synchronize()
    return result


def heads(length: int = 128, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [data(2, 2, length, 32, dtype=dtype).roll(i, 2) for i in range(3)]


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def distance(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return score + (q - kv) * 0.015625


BLOCKS: dict[str, Any] = {}


def masked_heads(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    BLOCKS["causal"] = create_block_mask(causal, None, None, 256, 256, device="cuda")
    return heads(256, dtype)


def masked(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v, block_mask=BLOCKS["causal"])


def scored(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v, score_mod=distance)


def with_a_bias(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + bias[h, i, j])


def with_slopes(q: Any, k: Any, v: Any) -> Any:
    """Integers become floats in the score function: a cast that torch's `vmap` makes for each element."""
    slopes = torch.tensor([0.5, 0.25], device="cuda")
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score - slopes[h] * (i - j).abs())


def with_logsumexp(q: Any, k: Any, v: Any) -> Any:
    out, logsumexp = flex_attention(q, k, v, return_lse=True)
    return out.sum(-1) + logsumexp


FLEX: dict[str, tuple[Program, Callable[[], list[torch.Tensor]]]] = {
    "score function": (scored, heads),
    "block mask": (masked, masked_heads),
    "block mask in bfloat16": (masked, lambda: masked_heads(torch.bfloat16)),
    "captured buffer": (with_a_bias, lambda: [*heads(), data(2, 128, 128)]),
    "slopes": (with_slopes, lambda: heads(512)),
    "logsumexp": (with_logsumexp, heads),
    "odd length": (scored, lambda: heads(100)),
}
TEMPLATES: dict[str, tuple[Program, Callable[[], list[torch.Tensor]]]] = {
    "mm": (lambda x, y: torch.relu(x @ y + 1), lambda: [data(128, 256), data(256, 64)]),
    "addmm in bfloat16": (lambda b, x, y: nn.functional.gelu(torch.addmm(b, x, y)), lambda: [data(64, dtype=torch.bfloat16), data(64, 128, dtype=torch.bfloat16), data(128, 64, dtype=torch.bfloat16)]),
    "bmm": (lambda x, y: (torch.bmm(x, y) * 0.5).sigmoid(), lambda: [data(4, 64, 128), data(4, 128, 64)]),
    "mm + mm": (lambda a, b: a @ b + b @ a, lambda: [data(64, 64), data(64, 64).t().contiguous()]),
    "convolution": (lambda x, w: torch.relu(nn.functional.conv2d(x, w, padding=1)), lambda: [data(2, 16, 16, 16), data(32, 16, 3, 3)]),
}  # fmt: skip


def assert_clean(result: ShadowResult) -> None:
    assert not result, str(result)
    assert result.status == 0, str(result)
    assert not [u for u in result.unchecked if not u.kernel_name.startswith(("stage", "function"))], str(
        result
    )


@pytest.mark.parametrize("name", FLEX)
def test_flex_attention_is_judged(name: str) -> None:
    fn, args = FLEX[name]
    assert_clean(shadowed(fn, args(), backward=True))


def soft_capped(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: torch.tanh(score / 5) * 5)


def steeper_with_a_window(q: Any, k: Any, v: Any) -> Any:
    slopes = torch.tensor([2.0, 0.0625], device="cuda")
    window = create_block_mask(lambda b, h, i, j: (i - j).abs() < 100, None, None, 512, 512, device="cuda")
    return flex_attention(
        q, k, v, score_mod=lambda score, b, h, i, j: score - slopes[h] * (i - j).abs(), block_mask=window
    )


def grouped(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k[:, :1], v[:, :1], score_mod=distance, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("program", [with_slopes, soft_capped, steeper_with_a_window, grouped])
def test_gradients_of_attention_in_few_bits_are_not_accused(program: Program, dtype: torch.dtype) -> None:
    assert_clean(shadowed(program, heads(512, dtype), backward=True))


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_judged(name: str) -> None:
    fn, args = TEMPLATES[name]
    assert_clean(shadowed(fn, args(), backward=name != "mm + mm", **MAX))


FAULTS: dict[str, tuple[Program, Callable[[], list[torch.Tensor]], Plant, str, bool]] = {
    "scale": (scored, heads, in_kernel(r"SM_SCALE : tl\.constexpr = 0\.17", "SM_SCALE : tl.constexpr = 0.18", count=0), "forward", False),
    "score": (scored, heads, in_kernel(r"0\.015625", "0.03125", kernel="flex_attention"), "forward", False),
    "mask": (masked, masked_heads, in_kernel(r"(tmp\d+) >= (tmp\d+)", r"\1 > \2", kernel="flex_attention", count=0), "forward", False),
    "gradient of the scale": (scored, heads, in_kernel(r"dq \*= SM_SCALE", "dq *= 1.01 * SM_SCALE", kernel="backward"), "backward", True),
    "captured gradient": (with_a_bias, lambda: [*heads(), data(2, 128, 128)], in_kernel(r"(\w+), scatter_mask, sem", r"2 * \1, scatter_mask, sem", kernel="backward", count=0), "backward", True),
    "epilogue of mm": (*TEMPLATES["mm"], in_kernel(r"1\.0", "1.5", kernel="tem"), "forward", False),
    "inner loop of bmm": (*TEMPLATES["bmm"], in_kernel(r"acc \+= tl\.dot\(a, b", "acc += tl.dot(a, b * 1.01", kernel="tem"), "forward", False),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_template_is_named(name: str) -> None:
    fn, args, plant, phase, backward = FAULTS[name]
    options = MAX if "mm" in name else {}
    with plant() as canary:
        result = shadowed(fn, args(), backward=backward, **options)
    canary.assert_planted()
    assert result.culprit is not None, str(result)
    assert result.culprit.verdict == "wrong-kernel", str(result)
    assert result.culprit.kernel_name == canary.kernels[0], str(result)
    assert result.culprit.phase == phase, str(result)
