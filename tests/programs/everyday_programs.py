"""Programs that people have, in which nothing is wrong: a script of any of their calls must pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Program = Callable[[], None]
PROGRAMS: dict[str, Program] = {}


def program(make: Program) -> Program:
    PROGRAMS[make.__name__] = make
    return make


@program
def layer_norm_and_dropout_in_training() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    compiled = torch.compile(model)
    for _ in range(2):
        loss = F.cross_entropy(compiled(torch.randn(12, 16)), torch.randint(5, (12,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def attention_by_hand_in_bfloat16() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v

    q, k, v = (torch.randn(2, 2, 9, 8).bfloat16().requires_grad_() for _ in range(3))
    torch.compile(attention)(q, k, v).float().square().sum().backward()


@program
def softmax_of_large_numbers() -> None:
    x = (torch.randn(6, 40) * 1e4).requires_grad_()
    compiled = torch.compile(lambda x: (x.softmax(1), x.log_softmax(0), torch.logsumexp(x, 1)))
    probability, logarithm, total = compiled(x)
    (probability.square().sum() + logarithm[0].sum() + total.sum()).backward()


@program
def batch_norm_in_training() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
    compiled = torch.compile(model)
    for _ in range(2):
        compiled(torch.randn(4, 3, 8, 8) + 50).square().mean().backward()


@program
def embeddings() -> None:
    tokens = torch.randint(6, (5, 9))  # each of them often: gradients are added up
    table, bag = nn.Embedding(6, 8, padding_idx=0), nn.EmbeddingBag(6, 8, mode="mean")
    compiled = torch.compile(lambda tokens: table(tokens).sum(1) * bag(tokens))
    compiled(tokens).square().sum().backward()


@program
def running_sums() -> None:
    x = torch.randn(7, 300, requires_grad=True)
    compiled = torch.compile(lambda x: (x.cumsum(1), x.exp().cumsum(0).log(), x.sigmoid().cumprod(1)))
    sum(part.sum() for part in compiled(x)).backward()


@program
def graph_neural_network() -> None:
    """Messages are added up where edges end."""
    source, target = torch.randint(10, (2, 60))
    weight = torch.randn(8, 8, requires_grad=True)

    def layer(x: torch.Tensor) -> torch.Tensor:
        messages = (x @ weight)[source].relu()
        total = torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 8), messages)
        degree = torch.zeros(10).index_add(0, target, torch.ones(60)).clamp(min=1)
        return x + total / degree[:, None]

    torch.compile(layer)(torch.randn(10, 8)).square().sum().backward()


@program
def quantized_to_8_bits() -> None:
    def quantize(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale = x.abs().amax(1, keepdim=True) / 127
        narrow = (x / scale).round().clamp(-128, 127).to(torch.int8)
        back = narrow.float() * scale
        return narrow, back, back @ weight, (x - back).abs().max()

    x = torch.randn(10, 32)
    torch.compile(quantize)(torch.cat([x, x * 63.5 / x.abs().amax(1, keepdim=True)]), torch.randn(32, 4))


@program
def spectral_filter() -> None:
    def convolve(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        wide = torch.fft.rfft(x, 64) * torch.fft.rfft(kernel, 64)
        return torch.fft.irfft(wide, 64) + wide.abs().mean(1, keepdim=True)

    x, kernel = torch.randn(3, 50, requires_grad=True), torch.randn(9, requires_grad=True)
    torch.compile(convolve)(x, kernel).square().sum().backward()


@program
def sampling_from_the_best() -> None:
    """With ties."""

    def choose(logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = logits.topk(4, dim=1)
        ranked, order = logits.sort(dim=1, descending=True, stable=True)
        kept = ranked.softmax(1).cumsum(1) < 0.9
        return values.softmax(1), places, torch.where(kept, ranked, -torch.inf), order, logits.argmax(1)

    torch.compile(choose)((torch.randn(5, 30) * 4).round() / 4)


@program
def caches_updated_in_place() -> None:
    cache = torch.zeros(2, 12, 4)

    def step(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        cache[:, place] = x.sin()
        cache[:, :3].mul_(0.5)
        return (cache.transpose(1, 2) @ cache).view(2, -1)[:, ::3].add_(1)

    compiled = torch.compile(step)
    for i in range(2):
        compiled(torch.randn(2, 2, 4), torch.tensor([i, i + 3]))


@program
def batches_of_any_size() -> None:
    model = nn.Sequential(nn.Linear(6, 10), nn.SiLU(), nn.LayerNorm(10), nn.Linear(10, 3))
    compiled = torch.compile(model, dynamic=True)
    for size in (5, 17, 4):
        compiled(torch.randn(size, 7, 6)).logsumexp(-1).mean().backward()


@program
def training_under_autocast() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    compiled = torch.compile(model)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            loss = F.mse_loss(compiled(torch.randn(8, 16)), torch.randn(8, 4))
        (loss * 128).backward()


@program
def cells_of_a_recurrent_network() -> None:
    cell, head = nn.GRUCell(5, 8), nn.Linear(8, 2)

    def unrolled(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[1], 8)
        for each in x:
            state = cell(each, state)
        return head(state)

    torch.compile(unrolled)(torch.randn(4, 3, 5)).square().sum().backward()


@program
def grouped_convolutions() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=4, padding=1), nn.GroupNorm(2, 8), nn.Hardswish(),
        nn.Conv2d(8, 8, 3, groups=8, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    torch.compile(model)(torch.randn(2, 4, 9, 9)).square().sum().backward()


@program
def clipped_gradients() -> None:
    weights = [torch.randn(4, 5), torch.randn(7), torch.zeros(3)]
    gradients = [torch.randn_like(w) * 30 for w in weights]

    def step(weights: list[torch.Tensor], gradients: list[torch.Tensor]) -> torch.Tensor:
        norm = torch.stack([g.norm() for g in gradients]).norm()
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(gradient * (1 / (norm + 1e-6)).clamp(max=1), alpha=0.1)
        return norm

    torch.compile(step)(weights, gradients)
