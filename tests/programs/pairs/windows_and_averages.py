"""Windows, groups of heads, partial rotations, convolutions by hand, averages, caps, and compiled steps."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .registry import drawn, heads, pair, seeded
from .small_model import data, loss_of, small_model

_BF16, _FP16 = torch.bfloat16, torch.float16
_LENGTH, _WIDTH = 16, 32


def _windowed(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Attention to the last four tokens: a mask, or blocks that see themselves and the block before."""
    x = drawn(2, _LENGTH, _WIDTH, dtype=dtype)
    q, k, v = (heads(x @ (drawn(_WIDTH, _WIDTH, seed=100 + i) / 5).to(dtype)) for i in range(3))
    places = torch.arange(_LENGTH)
    far = places[:, None] - places
    if how == "mask":
        seen = (far >= 0) & (far < (5 if error == "window" else 4))  # wrong: window
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return [y.transpose(1, 2).flatten(2)]
    q, k, v = (each.unflatten(2, (-1, 4)) for each in (q, k, v))
    k, v = (torch.cat([F.pad(each, (0, 0, 0, 0, 1, 0))[:, :, :-1], each], 3) for each in (k, v))
    own, other = torch.arange(4)[:, None] + 4, torch.arange(8)
    seen = (other <= own) & (other > own - 4) & ((torch.arange(4)[:, None, None] > 0) | (other >= 4))
    scores = (q @ k.mT / math.sqrt(8)).masked_fill(~seen, -torch.inf)
    return [(scores.softmax(-1) @ v).flatten(2, 3).transpose(1, 2).flatten(2)]


pair("a window in blocks", partial(_windowed, "mask"), partial(_windowed, "blocks"))
pair("a window by a mask", partial(_windowed, "blocks"), partial(_windowed, "mask"))
pair("a window in bfloat16", partial(_windowed, "mask"), partial(_windowed, "mask", _BF16), "window")


def _shared_keys(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Eight heads of queries for two of keys, rotations of half of each head, and scores with a cap."""
    x = drawn(2, 10, _WIDTH, dtype=dtype)
    weight = (drawn(_WIDTH + 16, _WIDTH, seed=103) / 5).to(dtype).requires_grad_()
    made = F.linear(x, weight)
    q = heads(made[..., :_WIDTH], 8)
    k, v = (heads(each, 2) for each in made[..., _WIDTH:].chunk(2, -1))
    start = 1 if error == "late" else 0
    angles = torch.arange(start, start + 10)[:, None] * 50.0 ** -torch.arange(1.0)  # wrong: late

    def turned(each: torch.Tensor) -> torch.Tensor:
        first, rest = each[..., :2], each[..., 2:]
        a, b = first.float().chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        both = torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(dtype)  # wrong: half
        return torch.cat([both, rest], -1)  # wrong: half

    q, k = turned(q), k if error == "half" else turned(k)
    cap = 2.0 if error == "cap" else 5.0
    if how == "einsum":
        scores = torch.einsum("bgrqd,bgkd->bgrqk", q.unflatten(1, (2, 4)), k) / 2.0  # wrong: half
        scores = cap * torch.tanh(scores / cap)  # wrong: cap
        later = torch.ones(10, 10, dtype=torch.bool).triu(1)
        chances = scores.float().masked_fill(later, -torch.inf).softmax(-1).to(dtype)
        y = torch.einsum("bgrqk,bgkd->bgrqd", chances, v).flatten(1, 2)
    else:
        scores = q @ k.repeat_interleave(4, 1).mT / 2.0
        scores = cap * torch.tanh(scores / cap)
        later = torch.ones(10, 10, dtype=torch.bool).triu(1)
        chances = scores.float().masked_fill(later, -torch.inf).softmax(-1).to(dtype)
        y = chances @ v.repeat_interleave(4, 1)
    y = y.transpose(1, 2).flatten(2)
    y.float().square().mean().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    return [y.detach()]


pair("capped scores by einsum", partial(_shared_keys, "repeated"), partial(_shared_keys, "einsum"))
pair("capped scores, repeated keys", partial(_shared_keys, "einsum"), partial(_shared_keys, "repeated"))
pair(
    "capped scores in bfloat16", partial(_shared_keys, "einsum"),
    partial(_shared_keys, "einsum", _BF16), "cap", "half",
)  # fmt: skip
pair("capped scores in float16", partial(_shared_keys, "einsum"), partial(_shared_keys, "einsum", _FP16))


def _depthwise(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A convolution of each channel of images."""
    x = drawn(2, 6, 8, 8, dtype=dtype)
    kernel = (drawn(6, 3, 3, seed=104) / 3).to(dtype).requires_grad_()
    mixing = (drawn(6, 6, seed=105) / 2).to(dtype).requires_grad_()
    if how == "layer":
        y = F.conv2d(x, kernel[:, None], padding=1, groups=6)
    else:
        parts = F.unfold(x, 3, padding=1).unflatten(1, (6, 9))
        flat = kernel.flip(-1) if error == "flipped" else kernel  # wrong: flipped
        y = (parts * flat.reshape(6, 9, 1)).sum(2).view(2, 6, 8, 8)  # wrong: flipped
    y = torch.einsum("bchw,dc->bdhw", F.hardswish(y), mixing)
    y.float().square().mean().backward()
    with torch.no_grad():
        kernel -= 0.1 * kernel.grad
        mixing -= 0.1 * mixing.grad
    return [y.detach()]


pair("depthwise by unfold", partial(_depthwise, "layer"), partial(_depthwise, "unfold"))
pair(
    "depthwise by unfold in bfloat16", partial(_depthwise, "unfold"),
    partial(_depthwise, "unfold", _BF16), "flipped",
)  # fmt: skip
pair("depthwise by a layer", partial(_depthwise, "unfold"), partial(_depthwise, "layer"))
pair("depthwise in bfloat16", partial(_depthwise, "layer"), partial(_depthwise, "layer", _BF16))


def _padded_words(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """An embedding whose first word is padding, a mean of the others, and tied logits."""
    words = torch.randint(0, 12, (6, 7), generator=torch.Generator().manual_seed(5))
    table = (drawn(12, 8, seed=106) / 2).to(dtype).requires_grad_()
    for _ in range(2):
        if how == "torch":
            x = F.embedding(words, table, padding_idx=0)
        else:
            x = table[words]
            if error != "padding learns":
                keep = (words != 0)[..., None]
                x = torch.where(keep, x, x.detach())  # wrong: padding learns
        count = (words != 0).sum(-1, keepdim=True)
        y = (x * (words != 0)[..., None]).sum(1) / count
        loss = F.cross_entropy((y @ table.T).float(), words[:, 0]) + x.float().square().mean()
        loss.backward()
        with torch.no_grad():
            table -= 0.5 * table.grad
            table.grad = None
    return [loss.detach()]


pair("padding of words by hand", partial(_padded_words, "torch"), partial(_padded_words, "hand"))
pair("padding of words by torch", partial(_padded_words, "hand"), partial(_padded_words, "torch"))
pair("padding of words in bfloat16", partial(_padded_words, "torch"), partial(_padded_words, "torch", _BF16))
pair(
    "padding of words by hand in both", partial(_padded_words, "hand"),
    lambda error: _padded_words("hand", error=error), "padding learns",
)  # fmt: skip


def _averaged(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """An average of weights that warms up, of three steps, which the loss is evaluated with at the end."""
    model = small_model().to(dtype)
    slow = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for step in range(3):
        loss_of(model).backward()
        if error != "before":
            optimizer.step()
        share = min(0.9, (1 + step) / (10 + step))
        pairs = list(zip(slow.parameters(), (p.detach() for p in model.parameters()), strict=True))
        if how == "lerp":
            for a, p in pairs:
                a.lerp_(p, 1 - share)
        elif how == "foreach":
            torch._foreach_mul_([a for a, _ in pairs], share)
            torch._foreach_add_([a for a, _ in pairs], [p for _, p in pairs], alpha=1 - share)
        else:
            for a, p in pairs:
                a.copy_(share * a + (1 - share) * p)  # wrong: before
        if error == "before":
            optimizer.step()
        optimizer.zero_grad()
    return [loss_of(slow).detach()]


pair(
    "a warmed average by sums", partial(_averaged, "lerp"),
    lambda error: _averaged("sums", error=error), "before",
)  # fmt: skip
pair("a warmed average by foreach", partial(_averaged, "lerp"), partial(_averaged, "foreach"))
pair("a warmed average by lerp", partial(_averaged, "foreach"), partial(_averaged, "lerp"))
pair("a warmed average in bfloat16", partial(_averaged, "lerp"), partial(_averaged, "lerp", _BF16))


def _summed(parts: int, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Two steps of a batch in parts, with the norm of the gradients clipped."""
    model = small_model().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = data(dtype)
    for _ in range(2):
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            loss = F.cross_entropy(model(a).float(), b)
            (loss if error == "undivided" else loss / parts).backward()  # wrong: undivided
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


pair("clipped parts", partial(_summed, 1), partial(_summed, 2))
pair("clipped parts in bfloat16", partial(_summed, 4), partial(_summed, 4, _BF16), "undivided")


def _two_sizes(compiled: bool, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """Steps with batches of two sizes; compiled, with dynamic shapes."""
    seeded(21)
    model = nn.Sequential(nn.Linear(24, 32), nn.RMSNorm(32), nn.SiLU(), nn.Linear(32, 10)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        smoothing = 0.2 if error == "smoothing" else 0.05
        return F.cross_entropy(model(x).float(), y, label_smoothing=smoothing)  # wrong: smoothing

    chosen = torch.compile(loss_of_part, dynamic=True) if compiled else loss_of_part
    for count in (12, 7, 9):
        x = drawn(count, 24, seed=110 + count, dtype=dtype)
        y = torch.arange(count) % 10
        loss = chosen(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [loss.detach()]


pair(
    "two sizes, compiled",
    partial(_two_sizes, False),
    lambda error: _two_sizes(True, error=error),
    "smoothing",
)
pair("two sizes, compiled in bfloat16", partial(_two_sizes, False), partial(_two_sizes, True, _BF16))


def _eight_bits(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A weight of eight bits with a scale for each row: the weight widened, or the result scaled."""
    x, weight = drawn(9, 20, dtype=dtype), drawn(14, 20, seed=107)
    scale = weight.abs().amax(1) / 127
    whole = (weight / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
    used = scale.amax().expand(14) if error == "one scale" else scale
    if how == "weight":
        y = F.linear(x, (whole.to(dtype) * used[:, None].to(dtype)))  # wrong: one scale
    else:
        y = F.linear(x, whole.to(dtype)) * used.to(dtype)  # wrong: one scale
    return [y.softmax(-1)]


pair("eight bits, scaled afterwards", partial(_eight_bits, "weight"), partial(_eight_bits, "result"))
pair("eight bits, scaled before", partial(_eight_bits, "result"), partial(_eight_bits, "weight"))
pair(
    "eight bits in bfloat16", partial(_eight_bits, "result"),
    partial(_eight_bits, "result", _BF16), "one scale",
)  # fmt: skip


def _several_labels(how: str, dtype: torch.dtype = torch.float32, error: str = "") -> Any:
    """A loss of several labels, with a weight for those that are there, and small logits."""
    model, (x, _) = small_model().to(dtype), data(dtype)
    there = (drawn(len(x), 10, seed=108) > 0.5).to(dtype)
    for _ in range(2):
        logits = model(x).float()
        if how == "torch":
            loss = F.binary_cross_entropy_with_logits(logits, there.float(), pos_weight=torch.tensor(3.0))
        else:
            yes = F.logsigmoid(logits)
            no = F.logsigmoid(logits if error == "sign of no" else -logits)  # wrong: sign of no
            loss = -(3.0 * there * yes + (1 - there) * no).mean()  # wrong: sign of no
        loss = loss + 1e-3 * logits.logsumexp(-1).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.2 * p.grad
                p.grad = None
    return [loss.detach()]


pair("several labels by hand", partial(_several_labels, "torch"), partial(_several_labels, "hand"))
pair("several labels by torch", partial(_several_labels, "hand"), partial(_several_labels, "torch"))
pair(
    "several labels in bfloat16", partial(_several_labels, "hand"),
    partial(_several_labels, "hand", _BF16), "sign of no",
)  # fmt: skip
