"""Norms, embeddings, gates, recurrent layers and losses, as torch has them and by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import pair, seeded, train

_WIDTH = 24


def _inputs(dtype: torch.dtype = torch.float32, *sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 8, _WIDTH)), generator=torch.Generator().manual_seed(8)).to(dtype)


class _Norm(nn.Module):
    """Of the root of the mean square: in one operator, by hand, or in float32 as large models do."""

    def __init__(self, how: str, error: str = "") -> None:
        super().__init__()
        self.how, self.error, self.weight = how, error, nn.Parameter(torch.randn(_WIDTH).abs())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eps = 1e-2 if self.error == "eps" else 1e-6
        if self.how == "one":
            return F.rms_norm(x, (_WIDTH,), self.weight, eps)  # wrong: eps, weight
        wide = x if self.how == "own dtype" else x.float()
        if self.error == "mean":
            wide = wide - wide.mean(-1, keepdim=True)  # wrong: mean
        dim = 1 if self.error == "axis" else -1
        power = wide.pow(2).mean(dim, keepdim=True)  # wrong: axis
        normed = (wide * torch.rsqrt(power + eps)).to(x.dtype)  # wrong: eps, axis
        return normed if self.error == "weight" else self.weight * normed  # wrong: weight


def _block(norm: str, gate: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A norm, and a gated layer with two weights or with one for both."""
    seeded()
    first, up, down = (nn.Linear(*sizes, bias=False) for sizes in ((24, 40), (24, 40), (40, 24)))
    layer = nn.ModuleList([_Norm(norm, error), down])
    if gate == "fused":
        fused = nn.Linear(24, 80, bias=False)
        with torch.no_grad():
            fused.weight.copy_(torch.cat([first.weight, up.weight]))
        layer.append(fused)
    else:
        layer.extend([first, up])
    model, x = layer.to(dtype), _inputs(dtype)

    def loss(_: nn.Module) -> torch.Tensor:
        h = layer[0](x)
        a, b = layer[2](h).chunk(2, -1) if gate == "fused" else (layer[2](h), layer[3](h))
        if error == "swapped":
            a, b = b, a
        gated = F.gelu(a) * b if error == "gelu" else F.silu(a) * b  # wrong: gelu, swapped
        y = x + layer[1](gated)
        return (layer[1](gated) if error == "residual" else y).float().square().mean()  # wrong: residual

    return train(model, loss)


_NORM_ERRORS = ("eps", "mean", "axis", "weight")
_GATE_ERRORS = ("gelu", "swapped", "residual")
pair(
    "norm by hand",
    lambda: _block("one", "apart"),
    lambda error: _block("own dtype", "apart", error=error),
    *_NORM_ERRORS,
)
pair(
    "gate in one weight",
    lambda: _block("one", "apart"),
    lambda error: _block("one", "fused", error=error),
    *_GATE_ERRORS,
)
pair(
    "norm by hand and gate in one weight, in bfloat16", lambda: _block("one", "apart"),
    lambda error: _block("float32", "fused", torch.bfloat16, error), *_NORM_ERRORS[1:], *_GATE_ERRORS,
)  # fmt: skip
pair(
    "norm in one operator, in bfloat16",
    lambda: _block("float32", "fused"),
    lambda: _block("one", "fused", torch.bfloat16),
)


def _layer_norm(how: str) -> Any:
    seeded()
    norm, x = nn.LayerNorm(_WIDTH), _inputs()
    head = nn.Linear(_WIDTH, 5)
    group = nn.GroupNorm(1, _WIDTH)

    def loss(_: nn.Module) -> torch.Tensor:
        if how == "by hand":
            mean = x.mean(-1, keepdim=True)
            variance = (x - mean).square().mean(-1, keepdim=True)
            h = (x - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias
        elif how == "var_mean":
            variance, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
            h = torch.addcmul(norm.bias, (x - mean) * torch.rsqrt(variance + 1e-5), norm.weight)
        elif how == "group":
            h = group(x.flatten(0, 1)).view_as(x)
        else:
            h = norm(x)
        return head(h).square().mean()

    model = nn.ModuleList([group if how == "group" else norm, head])
    return train(model, loss)


for how in ("by hand", "var_mean", "group"):
    pair(f"layer norm, {how}", lambda: _layer_norm(""), lambda how=how: _layer_norm(how))
pair("layer norm as the other", lambda: _layer_norm("by hand"), lambda: _layer_norm(""))


class _Language(nn.Module):
    """Embeddings whose weight is also that of the head."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.embed, self.body = nn.Embedding(30, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        if how == "shared":
            self.head = nn.Linear(_WIDTH, 30, bias=False)
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        weight = self.embed.weight
        x = F.one_hot(ids, 30).to(weight.dtype) @ weight if self.how == "one hot" else self.embed(ids)
        h = torch.tanh(self.body(x))
        return self.head(h) if self.how == "shared" else h @ weight.T


def _language(how: str, loss_by: str = "", dtype: torch.dtype = torch.float32) -> Any:
    seeded()
    model = _Language(how).to(dtype)
    ids = torch.arange(40).view(4, 10) % 30

    def loss(run: nn.Module) -> torch.Tensor:
        scores, targets = run(ids)[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten()
        if loss_by == "hand":
            return (scores.logsumexp(-1) - scores.gather(1, targets[:, None])[:, 0]).mean()
        if loss_by == "chunks":
            parts = zip(scores.split(9), targets.split(9), strict=True)
            return sum(F.cross_entropy(a, b, reduction="sum") for a, b in parts) / len(targets)
        if loss_by == "ignored":
            padded = torch.where(torch.arange(len(targets)) % 9 == 0, -100, targets)
            return F.cross_entropy(scores, padded)
        if loss_by == "mask":
            keep = torch.arange(len(targets)) % 9 != 0
            return (F.cross_entropy(scores, targets, reduction="none") * keep).sum() / keep.sum()
        return F.cross_entropy(scores, targets)

    return train(model, loss)


pair("tied embeddings", lambda: _language("shared"), lambda: _language("apart"))
pair("embeddings by one hot", lambda: _language("shared"), lambda: _language("one hot"))
pair(
    "tied embeddings in bfloat16", lambda: _language("shared"), lambda: _language("apart", "", torch.bfloat16)
)
pair("cross entropy by hand", lambda: _language("shared"), lambda: _language("shared", "hand"))
pair("cross entropy in chunks", lambda: _language("shared"), lambda: _language("shared", "chunks"))
pair("ignored targets by a mask", lambda: _language("shared", "ignored"), lambda: _language("shared", "mask"))


def _transposed(how: str) -> Any:
    """A weight that is stored the other way round, as in GPT-2."""
    seeded()
    layer, x = nn.Linear(_WIDTH, 40), _inputs()
    weight = layer.weight.detach().T.contiguous().requires_grad_()
    for _ in range(2):
        y = torch.addmm(layer.bias, x.view(-1, _WIDTH), weight) if how == "other" else layer(x).view(-1, 40)
        F.gelu(y).square().mean().backward()
        with torch.no_grad():
            for part in (layer.bias, weight if how == "other" else layer.weight):
                part -= 0.1 * part.grad
                part.grad = None


pair("a weight stored the other way round", lambda: _transposed(""), lambda: _transposed("other"))


def _adapted(is_merged: bool, error: str = "") -> Any:
    """A low-rank addition to a weight, merged or beside it."""
    seeded()
    layer, x = nn.Linear(_WIDTH, 40), _inputs()
    a, b = torch.randn(4, _WIDTH) * 0.1, torch.randn(40, 4) * 0.1
    with torch.no_grad():
        if is_merged:
            return [F.linear(x, layer.weight + 2.0 * (b @ a), layer.bias).tanh()]
        scale = 1.0 if error == "scale" else 2.0
        return [(layer(x) + (x @ a.T @ b.T) * scale).tanh()]  # wrong: scale


pair(
    "a low-rank addition beside the weight",
    lambda: _adapted(True),
    lambda error: _adapted(False, error),
    "scale",
)


def _recurrent(how: str) -> Any:
    seeded()
    layer = nn.GRU(_WIDTH, 16, batch_first=True)
    x = _inputs()

    def loss(_: nn.Module) -> torch.Tensor:
        if how == "layer":
            return layer(x)[0].square().mean()
        h, made = torch.zeros(3, 16), []
        for t in range(x.shape[1]):
            gates = F.linear(x[:, t], layer.weight_ih_l0, layer.bias_ih_l0).chunk(3, -1)
            inner = F.linear(h, layer.weight_hh_l0, layer.bias_hh_l0).chunk(3, -1)
            reset, update = torch.sigmoid(gates[0] + inner[0]), torch.sigmoid(gates[1] + inner[1])
            new = torch.tanh(gates[2] + reset * inner[2])
            h = (1 - update) * new + update * h
            made.append(h)
        return torch.stack(made, 1).square().mean()

    return train(layer, loss)


pair("a recurrent layer by hand", lambda: _recurrent("layer"), lambda: _recurrent("hand"))
pair("a recurrent layer as the other", lambda: _recurrent("hand"), lambda: _recurrent("layer"))


class _Swish(torch.autograd.Function):
    """With a backward pass by hand."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, error: str) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        ctx.error = error
        return a * torch.sigmoid(a) * b

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        chance = torch.sigmoid(a)
        slope = chance if ctx.error == "term" else chance * (1 + a * (1 - chance))
        return given * b * slope, given * a * chance, None  # wrong: term


def _own_backward(is_own: bool, error: str = "") -> Any:
    seeded()
    first, second, x = nn.Linear(_WIDTH, 40), nn.Linear(_WIDTH, 40), _inputs()

    def loss(_: nn.Module) -> torch.Tensor:
        a, b = first(x), second(x)
        return (_Swish.apply(a, b, error) if is_own else F.silu(a) * b).square().mean()

    return train(nn.ModuleList([first, second]), loss)


pair(
    "a backward pass by hand", lambda: _own_backward(False), lambda error: _own_backward(True, error), "term"
)
