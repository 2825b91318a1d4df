"""Is flex_attention deterministic, forward and backward? Every kernel is asked, on the CPU and on a GPU.

python examples/flex_determinism.py [--device cpu|cuda] [--runs N] [--recompile]
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import kernelscope


def causal(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    return q >= kv


def softcap(score: torch.Tensor, b: object, h: object, q: object, kv: object) -> torch.Tensor:
    return 20.0 * torch.tanh(score / 20.0)


def attention_inputs(device: str, length: int = 256) -> list[torch.Tensor]:
    """Queries, keys and values. On a GPU they need gradients; on a CPU flex_attention has no backward."""
    torch.manual_seed(0)
    shape = (1, 2, length, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return [torch.randn(shape, device=device, dtype=dtype, requires_grad=device == "cuda") for _ in range(3)]


def check(device: str, runs: int, recompile: bool) -> kernelscope.DeterminismResult:
    inputs = attention_inputs(device)
    mask = create_block_mask(causal, None, None, 256, 256, device=device)
    attention = torch.compile(flex_attention) if can_compile(device) else flex_attention

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = attention(q, k, v, score_mod=softcap, block_mask=mask)
        assert isinstance(out, torch.Tensor)
        return out

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = forward(q, k, v)
        return (out, *torch.autograd.grad(out.float().square().sum(), (q, k, v)))

    fn = step if device == "cuda" else forward
    return kernelscope.check_determinism(fn, *inputs, runs=runs, recompile=recompile)


def can_compile(device: str) -> bool:
    """Torch compiles flex_attention for GPUs, and for CPUs with AVX2; elsewhere its eager form is asked."""
    if device == "cuda" or torch.cpu._is_avx2_supported():
        return True
    print("torch does not compile flex_attention for this CPU: asking its eager operators")
    return False


def check_backward_on_cpu(runs: int, recompile: bool) -> kernelscope.DeterminismResult:
    """The same attention written out, which has a backward on a CPU too."""
    inputs = [tensor.requires_grad_() for tensor in attention_inputs("cpu", 64)]

    @torch.compile
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = 20.0 * torch.tanh(q @ k.transpose(-1, -2) / 8 / 20.0)
        keep = torch.ones(64, 64, dtype=torch.bool).tril()
        return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))

    return kernelscope.check_determinism(step, *inputs, runs=runs, recompile=recompile)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--recompile", action="store_true", help="compile and autotune anew for each run")
    options = parser.parse_args()
    results = [check(options.device, options.runs, options.recompile)]
    if options.device == "cpu":
        results.append(check_backward_on_cpu(options.runs, options.recompile))
    for what, result in zip(("flex_attention", "attention, with its backward"), results, strict=False):
        print(f"{what} on {options.device}: {result}")
    return int(any(map(bool, results)))


if __name__ == "__main__":
    sys.exit(main())
