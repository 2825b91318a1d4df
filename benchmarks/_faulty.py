"""A program that a fault in the compiler makes wrong, for bisect_commands.py: `python _faulty.py FAULT`.

It plants the fault itself, computes its result compiled and in eager, and ends with status 1 if these differ.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.config
from torch import nn
from torch.nn import functional as F

Step = Callable[[Callable[[Any], Any]], list[torch.Tensor]]  # given how to compile

BACKEND = os.environ.get("TORCH_COMPILE_BACKEND", "inductor")  # how CompilerBisector tells it
PASS = "post_grad_custom_post_pass"
torch._inductor.config.cpp.simdlen = 1  # the faults are in code that is not vectorized


def wrong_operator(name: str, wrong: str) -> None:
    """Generated C++ computes this operator wrongly."""
    from torch._inductor.codegen.cpp import CppOverrides

    setattr(CppOverrides, name, staticmethod(lambda x: wrong.format(x=x)))


def relu() -> None:
    wrong_operator("relu", "std::max({x}, decltype({x})(0.01))")


def exp() -> None:
    wrong_operator("exp", "std::exp({x} * 1.25f)")


def erf() -> None:
    wrong_operator("erf", "std::erf({x} * 1.25f)")


def wrong_pass() -> None:
    def sums_to_differences(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    setattr(torch._inductor.config, PASS, sums_to_differences)


def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = F.layer_norm(F.gelu(x @ w), (x.shape[-1],))
    hidden = (hidden @ w).softmax(-1) @ x
    return ((hidden @ w).relu() + hidden).tanh()


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.mix(self.first(x)).chunk(3, dim=-1))
        weights = (q @ k.transpose(-2, -1) / shape[-1] ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.second(x))))


def training_step() -> Step:
    """Loss and gradients of two layers."""
    model = nn.Sequential(Block(), Block())
    x, target = torch.randn(4, 16, 32), torch.randn(4, 16, 32)

    def step(compiled: Callable[[Any], Any]) -> list[torch.Tensor]:
        model.zero_grad()
        loss = F.mse_loss(compiled(model)(x), target)
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    return step


def function(fn: Callable[..., torch.Tensor]) -> Callable[[], Step]:
    def made() -> Step:
        inputs = [torch.randn(32, 32) for _ in range(2)]
        return lambda compiled: [compiled(fn)(*inputs)]

    return made


FAULTS: dict[str, tuple[Callable[[], None], Callable[[], Step]]] = {
    "relu": (relu, function(lambda x, w: (x @ w).relu() + 1)),
    "exp": (exp, function(lambda x, w: (x @ w).softmax(-1))),
    "erf": (erf, function(lambda x, w: F.gelu(x) * w)),
    "pass": (wrong_pass, function(lambda x, w: (x.sin() + w).exp())),
    "network": (relu, function(network)),
    "training": (erf, training_step),
}


def main(name: str) -> int:
    plant, program = FAULTS[name]
    torch.manual_seed(0)
    step = program()
    expected = step(lambda fn: fn)
    plant()
    made = step(lambda fn: torch.compile(fn, backend=BACKEND))
    is_right = all(torch.allclose(a, b, atol=1e-4) for a, b in zip(made, expected, strict=True))
    print("right" if is_right else "wrong", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
