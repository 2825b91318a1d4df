"""Formulas that are equal in exact numbers: steps in another order, expanded sums, factors elsewhere."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from .registry import drawn, pair
from .small_model import data, loss_of, small_model

_BF16 = torch.bfloat16


def _weights(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    sized = [(drawn(*shape, seed=120 + i) / math.sqrt(shape[-1])).to(dtype) for i, shape in enumerate(shapes)]
    return [each.requires_grad_() for each in sized]


def _step(weights: list[torch.Tensor], loss: torch.Tensor) -> list[torch.Tensor]:
    loss.backward()
    with torch.no_grad():
        for each in weights:
            each -= 0.1 * each.grad
    return [loss.detach()]


def _pooled(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    kernel, head = weights = _weights((6, 3, 3, 3), (5, 6), dtype=dtype)
    y = F.conv2d(drawn(2, 3, 8, 8, dtype=dtype), kernel, padding=1)
    y = F.max_pool2d(F.relu(y), 2) if how == "relu first" else F.relu(F.max_pool2d(y, 2))
    mean = y.amax((2, 3)) if error == "largest" else y.mean((2, 3))  # wrong: largest
    return _step(weights, F.cross_entropy((mean @ head.T).float(), torch.tensor([1, 3])))


pair("relu before a pool", partial(_pooled, "relu first"), partial(_pooled, "pool first"))
pair("relu after a pool", partial(_pooled, "pool first"), partial(_pooled, "relu first"))
pair(
    "relu and a pool in bfloat16",
    partial(_pooled, "pool first"),
    partial(_pooled, "pool first", _BF16),
    "largest",
)


def _mixture(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Chances of the chosen experts: of all, divided by their sum; or a softmax of the chosen logits."""
    router, experts = weights = _weights((5, 12), (5, 12, 12), dtype=dtype)
    x = drawn(14, 12, dtype=dtype)
    logits = (x @ router.T).float()
    if how == "chosen first":
        best, which = logits.topk(2, -1)
        best = best.sigmoid() if error == "sigmoid" else best.softmax(-1)  # wrong: sigmoid
    else:
        best, which = logits.softmax(-1).topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
    made = torch.einsum("td,edf->tef", x, experts)
    chosen = made.gather(1, which[..., None].expand(-1, -1, 12))
    y = (chosen * best[..., None].to(dtype)).sum(1)
    return _step(weights, y.float().square().mean())


pair("experts chosen before the softmax", partial(_mixture, "chosen last"), partial(_mixture, "chosen first"))
pair("experts chosen after the softmax", partial(_mixture, "chosen first"), partial(_mixture, "chosen last"))
pair(
    "experts chosen before the softmax in bfloat16", partial(_mixture, "chosen first"),
    partial(_mixture, "chosen first", _BF16), "sigmoid",
)  # fmt: skip


def _chosen_under_autocast() -> Any:
    with torch.autocast("cpu", dtype=_BF16):
        return _mixture("chosen first")


pair("experts chosen before the softmax, autocast", partial(_mixture, "chosen last"), _chosen_under_autocast)


def _distances(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Squared distances to codes, and a softmax of them."""
    (codes,) = weights = _weights((7, 16), dtype=dtype)
    x = drawn(9, 16, dtype=dtype)
    if how == "differences":
        far = (x[:, None] - codes).square().sum(-1)
    else:
        factor = 1 if error == "factor" else 2
        between = factor * (x @ codes.T)  # wrong: factor
        far = x.square().sum(-1, keepdim=True) - between + codes.square().sum(-1)
    return _step(weights, F.nll_loss((-far.float()).log_softmax(-1), torch.arange(9) % 7))


pair("distances, expanded", partial(_distances, "differences"), partial(_distances, "expanded"))
pair("distances of differences", partial(_distances, "expanded"), partial(_distances, "differences"))
pair(
    "distances, expanded in bfloat16", partial(_distances, "expanded"),
    partial(_distances, "expanded", _BF16), "factor",
)  # fmt: skip


def _spread(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """A variance of two passes, or the mean of the squares less the square of the mean."""
    weight, back = weights = _weights((20, 12), (20, 20), dtype=dtype)
    y = drawn(10, 12, dtype=dtype) @ weight.T
    mean = y.mean(-1, keepdim=True)
    if how == "two passes":
        power = (y - mean).square().mean(-1, keepdim=True)
    else:
        power = y.square().mean(-1, keepdim=True) - mean.square()
    y = F.silu((y - mean) * torch.rsqrt(power + 1e-5)) @ back
    return _step(weights, y.float().square().mean())


pair("a variance of squares", partial(_spread, "two passes"), partial(_spread, "squares"))
pair("a variance of two passes", partial(_spread, "squares"), partial(_spread, "two passes"))


def _activated(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    first, second = weights = _weights((24, 12), (12, 24), dtype=dtype)
    y = drawn(10, 12, dtype=dtype) @ first.T
    if how == "torch":
        a, b, c = F.silu(y), F.gelu(y, approximate="tanh"), F.mish(y)
    else:
        root = math.sqrt(1 / math.pi if error == "constant" else 2 / math.pi)
        a = y * torch.sigmoid(y)
        b = 0.5 * y * (1 + torch.tanh(root * (y + 0.044715 * y.pow(3))))  # wrong: constant
        c = y * torch.tanh(F.softplus(y))
    return _step(weights, ((a + b + c) @ second.T).float().square().mean())


pair("activations by hand", partial(_activated, "torch"), partial(_activated, "hand"))
pair("activations by torch", partial(_activated, "hand"), partial(_activated, "torch"))
pair("activations in bfloat16", partial(_activated, "hand"), partial(_activated, "hand", _BF16), "constant")


def _corrected(how: str, error: str = "", dtype: torch.dtype = torch.float32) -> Any:
    """Adam: moments that are corrected, or a rate and an epsilon that are."""
    model = small_model().to(dtype)
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    for step in range(1, 4):
        loss_of(model).backward()
        first, second = 1 - 0.9**step, 1 - 0.99**step
        for p, (m, v) in zip(model.parameters(), moments, strict=True):
            with torch.no_grad():
                m.lerp_(p.grad, 0.1)
                v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                if how == "moments":
                    p -= 0.01 * (m / first) / ((v / second).sqrt() + 1e-8)
                else:
                    rate = 0.01 * (1.0 if error == "rate" else math.sqrt(second)) / first
                    p -= rate * m / (v.sqrt() + 1e-8 * math.sqrt(second))  # wrong: rate
                p.grad = None
    return [loss_of(model).detach()]


pair("a corrected rate", partial(_corrected, "moments"), partial(_corrected, "rate"))
pair("corrected moments", partial(_corrected, "rate"), partial(_corrected, "moments"))
pair("a corrected rate in both", partial(_corrected, "rate"), partial(_corrected, "rate"), "rate")


def _relative(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A bias of scores for each distance: looked up, or by one hot vectors."""
    table, weight = weights = _weights((4, 8), (16, 16), dtype=dtype)
    x = drawn(2, 10, 16, dtype=dtype)
    places = torch.arange(10)
    far = places - places[:, None] if error == "turned" else places[:, None] - places  # wrong: turned
    far = far.clamp(-3, 4) + 3
    if how == "lookup":
        bias = table[:, far]  # wrong: turned
    else:
        bias = torch.einsum("hb,qkb->hqk", table, F.one_hot(far, 8).to(dtype))
    q = (x @ weight).unflatten(-1, (4, 4)).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, q, q, attn_mask=bias.expand(2, -1, -1, -1))
    return _step(weights, y.float().square().mean())


pair("a relative bias by one hot", partial(_relative, "lookup"), partial(_relative, "one hot"))
pair("a relative bias by lookup", partial(_relative, "one hot"), partial(_relative, "lookup"))
pair(
    "a relative bias in bfloat16", partial(_relative, "lookup"), partial(_relative, "lookup", _BF16), "turned"
)


def _straight(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """The nearest code, with the gradient of what it stands for."""
    codes, weight = weights = _weights((7, 8), (8, 8), dtype=dtype)
    x = drawn(12, 8, dtype=dtype) @ weight
    which = torch.cdist(x.float(), codes.float()).argmin(-1)
    chosen = codes[which] if how == "index" else F.one_hot(which, 7).to(dtype) @ codes
    y = x + (chosen - x).detach()
    loss = y.float().square().mean() + (chosen - x.detach()).float().square().mean()
    return _step(weights, loss + 0.25 * (x - chosen.detach()).float().square().mean())


pair("the nearest code by one hot", partial(_straight, "index"), partial(_straight, "one hot"))
pair("the nearest code in bfloat16", partial(_straight, "index"), partial(_straight, "index", _BF16))


def _shuffled(how: str, dtype: torch.dtype = torch.float32) -> Any:
    """A larger image: pixel_shuffle, or dimensions in another order."""
    (kernel,) = weights = _weights((12, 3, 3, 3), dtype=dtype)
    y = F.conv2d(drawn(2, 3, 5, 5, dtype=dtype), kernel, padding=1)
    if how == "torch":
        y = F.pixel_shuffle(y, 2)
    else:
        y = y.view(2, 3, 2, 2, 5, 5).permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 10, 10)
    return _step(weights, F.leaky_relu(y, 0.1).float().square().mean())


pair("shuffled pixels by hand", partial(_shuffled, "torch"), partial(_shuffled, "hand"))
pair("shuffled pixels by torch", partial(_shuffled, "hand"), partial(_shuffled, "torch"))


def _weighted(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A loss with a weight for each class, and targets that are left out."""
    model, (x, y) = small_model().to(dtype), data(dtype)
    of_class = torch.linspace(0.5, 2.0, 10)
    y = y.masked_fill(torch.arange(16) % 5 == 0, -100)
    logits = model(x).float()
    if how == "torch":
        loss = F.cross_entropy(logits, y, weight=of_class)
    else:
        given = of_class[y.clamp_min(0)] * (y != -100)
        total = (y != -100).sum() if error == "count" else given.sum()  # wrong: count
        loss = -(given * logits.log_softmax(-1).gather(-1, y.clamp_min(0)[:, None])[:, 0]).sum()
        loss = loss / total  # wrong: count
    return _step([*model.parameters()], loss)


pair("weights of classes by hand", partial(_weighted, "torch"), partial(_weighted, "hand"))
pair("weights of classes by torch", partial(_weighted, "hand"), partial(_weighted, "torch"))
pair("weights of classes in bfloat16", partial(_weighted, "hand"), partial(_weighted, "hand", _BF16), "count")


def _residual(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A norm whose weight is in the matrix that follows, and words that are scaled in the table."""
    table, matrix = weights = _weights((11, 16), (16, 16), dtype=dtype)
    gain = (drawn(16, seed=130) / 4 + 1).to(dtype)
    words = torch.arange(12) % 11
    if how == "folded":
        x = (table * 4.0)[words]
        y = F.rms_norm(x, (16,), eps=1e-6) @ (matrix * gain[:, None])
    else:
        x = table[words] * (1.0 if error == "unscaled" else 4.0)  # wrong: unscaled
        y = F.rms_norm(x, (16,), gain, eps=1e-6) @ matrix
    y = (y + x) @ table.T  # wrong: unscaled
    return _step(weights, F.cross_entropy(y.float(), (words + 1) % 11))


pair("folded factors", partial(_residual, "apart"), partial(_residual, "folded"))
pair("factors apart", partial(_residual, "folded"), partial(_residual, "apart"))
pair("factors apart in bfloat16", partial(_residual, "apart"), partial(_residual, "apart", _BF16), "unscaled")
