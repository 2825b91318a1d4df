"""Experts that a router chooses, and layers for images."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import pair, seeded, train

_WIDTH = 24


def _inputs(dtype: torch.dtype = torch.float32, *sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 8, _WIDTH)), generator=torch.Generator().manual_seed(8)).to(dtype)


def _experts(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """The two best of four experts for each token."""
    seeded()
    router = nn.Linear(_WIDTH, 4, bias=False)
    experts = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
    model, x = nn.ModuleList([router, experts]).to(dtype), _inputs(dtype, 20, _WIDTH)

    def loss(_: nn.Module) -> torch.Tensor:
        scores = router(x).float().softmax(-1)
        chances, chosen = scores.topk(2, -1)
        if error != "sum":
            chances = chances / chances.sum(-1, keepdim=True)  # wrong: sum
        chances = chances.to(dtype)  # wrong: sum
        if how == "all":
            weights = torch.zeros(len(x), 4, dtype=dtype).scatter(1, chosen, chances)
            made = torch.stack([torch.tanh(expert(x)) for expert in experts], 1)
            y = (made * weights[..., None]).sum(1)
        else:
            y = torch.zeros_like(x)
            for number, expert in enumerate(experts):
                token, place = torch.where(chosen == number)
                part = torch.tanh(expert(x[token])) * chances[token, place, None]  # wrong: sum
                y = y.index_add(0, token, part)
        return y.float().square().mean()

    return train(model, loss)


pair("experts one by one", lambda: _experts("all"), lambda: _experts("selected"))
pair(
    "experts, one by one in both",
    lambda: _experts("selected"),
    lambda error: _experts("selected", error=error),
    "sum",
)
pair("experts for all tokens", lambda: _experts("selected"), lambda: _experts("all"))
pair(
    "experts in bfloat16",
    lambda: _experts("selected"),
    lambda error: _experts("selected", torch.bfloat16, error),
    "sum",
)


def _image(how: str) -> Any:
    seeded()
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    x, labels = _inputs(torch.float32, 4, 3, 10, 10), torch.tensor([0, 1, 2, 3])
    if how == "channels last":
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )

    def loss(run: nn.Module) -> torch.Tensor:
        if how == "unfolded":
            columns = F.unfold(x, 3, padding=1).transpose(1, 2)
            first = model[0]
            h = (columns @ first.weight.flatten(1).T + first.bias).transpose(1, 2).reshape(4, 8, 10, 10)
            return F.cross_entropy(model[1:](h), labels)
        return F.cross_entropy(run(x), labels)

    return train(model, loss)


pair("channels last", lambda: _image(""), lambda: _image("channels last"))
pair("channels first as the other", lambda: _image("channels last"), lambda: _image(""))
pair("convolution by a product", lambda: _image(""), lambda: _image("unfolded"))


def _folded(is_folded: bool, error: str = "") -> Any:
    """A batch norm in evaluation, or the convolution's weights with it."""
    seeded()
    conv, norm, x = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), _inputs(torch.float32, 4, 3, 10, 10)
    with torch.no_grad():
        norm.running_mean.copy_(torch.randn(8))
        norm.running_var.copy_(torch.rand(8) + 0.5)
        norm.eval()
        if not is_folded:
            return [norm(conv(x)).relu()]
        factor = norm.weight / (norm.running_var + (0.1 if error == "eps" else 1e-5)).sqrt()  # wrong: eps
        bias = (conv.bias - norm.running_mean) * factor + norm.bias
        made = F.conv2d(x, conv.weight * factor[:, None, None, None], bias)
        return [made.relu()]


pair("batch norm in the weights", lambda: _folded(False), lambda error: _folded(True, error), "eps")


def _patches(how: str) -> Any:
    seeded()
    conv, x = nn.Conv2d(3, 16, 4, stride=4), _inputs(torch.float32, 2, 3, 12, 12)
    head = nn.Linear(16, 5)

    def loss(_: nn.Module) -> torch.Tensor:
        if how == "linear":
            cut = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(2, 9, 48)
            h = F.linear(cut, conv.weight.flatten(1), conv.bias)
        else:
            h = conv(x).flatten(2).transpose(1, 2)
        return head(F.gelu(h)).mean(1).square().mean()

    return train(nn.ModuleList([conv, head]), loss)


pair("patches by a linear layer", lambda: _patches("conv"), lambda: _patches("linear"))
