"""Programs as people write them: no alarm, and the same results as without shadow."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kernelscope


def ema() -> list[torch.Tensor]:
    model = nn.Linear(8, 4)
    average = copy.deepcopy(model)

    @torch.compile
    def update(old: list[torch.Tensor], new: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for one, other in zip(old, new, strict=True):
                one.mul_(0.9).add_(other, alpha=0.1)

    with torch.no_grad():
        model.weight.add_(1)
    update(list(average.parameters()), list(model.parameters()))
    return [*average.parameters()]


def accumulated_gradients() -> list[torch.Tensor | None]:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    compiled = torch.compile(model)
    for i in range(3):
        (compiled(torch.full((2, 8), float(i))) / 3).sum().backward()
    return [each.grad for each in model.parameters()]


class Clipped(torch.autograd.Function):
    """With a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        made: torch.Tensor = gradient * (x.abs() < 1) * 2
        return made


def function_with_its_own_gradient() -> list[torch.Tensor | None]:
    x = torch.linspace(-2, 2, 16).requires_grad_()
    torch.compile(lambda x: Clipped.apply(x * 1.5).sum())(x).backward()  # type: ignore[no-untyped-call]
    return [x.grad]


def eight_bits() -> list[torch.Tensor]:
    def quantized(x: torch.Tensor) -> list[torch.Tensor]:
        scale = x.abs().amax(-1, keepdim=True) / 127
        numbers = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return [numbers, (numbers.int() @ numbers.int().T).float() * scale]

    return torch.compile(quantized)(torch.linspace(-1, 1, 32).view(4, 8))


def counting_module() -> list[torch.Tensor]:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Buffer(torch.zeros(4))
            self.count = nn.Buffer(torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.lerp_(x.mean(0), 0.1)
            self.count += 1
            return x - self.mean

    module = Centred()
    compiled = torch.compile(module)
    return [*(compiled(torch.arange(8.0).view(2, 4)) for _ in range(3)), module.mean, module.count]


def ragged_rows() -> list[torch.Tensor]:
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4) * 2], layout=torch.jagged)
    return [torch.compile(lambda x: (x * 2).sin())(rows).values()]


def ragged_rows_in_training() -> list[torch.Tensor]:
    """What is not the same to the last bit is computed again, in float64 and with small errors."""
    weights = torch.linspace(-1, 1, 64).view(8, 8).requires_grad_()
    lengths = [torch.linspace(-2, 2, 8 * n).view(n, 8) for n in (2, 3)]
    rows = torch.nested.nested_tensor(lengths, layout=torch.jagged, requires_grad=True)

    def layer(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(nn.functional.linear(x, weights)).pow(3).exp().sum()

    loss = torch.compile(layer)(rows)
    loss.backward()
    assert rows.grad is not None
    assert weights.grad is not None
    return [loss, rows.grad.values(), weights.grad]


@dataclasses.dataclass
class Batch:
    """What a loader yields."""

    x: torch.Tensor
    mask: torch.Tensor
    scale: float = 2.0


def dataclass_in_dictionary_out() -> list[torch.Tensor]:
    def masked(batch: Batch) -> dict[str, torch.Tensor]:
        kept = torch.where(batch.mask, batch.x * batch.scale, 0)
        return {"kept": kept, "sum": kept.sum()}

    return [*torch.compile(masked)(Batch(torch.arange(6.0), torch.arange(6) > 2)).values()]


def views_in_place() -> list[torch.Tensor]:
    def written(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.clone()
        y[1:, ::2].mul_(3)
        y.t()[0].add_(1)
        return [y, y.sum(0)]

    return torch.compile(written)(torch.arange(24.0).view(4, 6))


def frozen_layers() -> list[torch.Tensor]:
    """Where torch has MKL, Inductor packs the weights and adds the biases in a kernel of its own."""
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        return [torch.compile(model)(torch.randn(48, 64))]


def masked_scores_dropped() -> list[torch.Tensor]:
    def dropped(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        is_later = torch.ones(8, 8, dtype=torch.bool).triu(1)
        scores = nn.functional.dropout((q @ k.t()).masked_fill(is_later, -torch.inf), 0.1)
        return scores.nan_to_num()  # a dropped -inf is NaN

    return [torch.compile(dropped)(torch.randn(8, 4), torch.randn(8, 4))]


PROGRAMS = [
    ema, accumulated_gradients, function_with_its_own_gradient, eight_bits, counting_module, ragged_rows,
    ragged_rows_in_training, dataclass_in_dictionary_out, views_in_place, frozen_layers,
    masked_scores_dropped,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_nothing_is_wrong_and_nothing_changes(program: Callable[[], list[Any]]) -> None:
    def made() -> list[Any]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        return [value.detach().tolist() for value in program()]

    bare = made()
    with kernelscope.shadow() as result:
        shadowed = made()
    assert shadowed == bare
    assert result.status == 0, str(result)
