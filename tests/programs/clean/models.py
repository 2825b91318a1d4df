"""Clean programs: models, and parts of models."""

from __future__ import annotations

import torch
import torch.nn.utils.parametrizations
from tests.programs.clean.registry import leaf, program, run
from torch import nn
from torch.nn import functional as F


@program
def mlp() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    run(model, torch.randn(16, 32), times=2)


class Block(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))


@program
def transformer_block() -> None:
    run(Block(), torch.randn(2, 12, 32))


@program
def transformer_block_in_bfloat16() -> None:
    run(Block().bfloat16(), torch.randn(2, 12, 32, dtype=torch.bfloat16))


@program
def transformer_block_under_autocast() -> None:
    model = Block()

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    run(forward, leaf(2, 12, 32))


@program
def mlp_under_autocast_to_float16() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 16), nn.Softmax(-1))

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return model(x)

    run(forward, leaf(8, 32))


@program
def residual_network_with_batch_norm() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.norm, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = F.relu(self.norm(self.first(x)))
            return F.avg_pool2d(F.relu(self.norm2(self.second(hidden)) + x), 2).flatten(1)

    run(Residual(), torch.randn(4, 4, 8, 8), times=2)


@program
def long_short_term_memory() -> None:
    cell, head = nn.LSTMCell(8, 16), nn.Linear(16, 4)

    def forward(xs: torch.Tensor) -> torch.Tensor:
        state = xs.new_zeros(4, 16), xs.new_zeros(4, 16)
        for x in xs:
            state = cell(x, state)
        return head(state[0])

    run(forward, torch.randn(3, 4, 8))


@program
def embedding_bags() -> None:
    bag, table = nn.EmbeddingBag(20, 8, mode="mean"), nn.Embedding(20, 8, padding_idx=0)

    def forward(ids: torch.Tensor) -> torch.Tensor:
        return bag(ids) + table(ids).sum(1)

    run(forward, torch.randint(0, 20, (6, 5)))


@program
def attention_by_hand_with_a_mask() -> None:
    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v

    run(forward, leaf(2, 3, 10, 8), leaf(2, 3, 10, 8), leaf(2, 3, 10, 8))


@program
def attention_with_a_bias_and_grouped_heads() -> None:
    bias = torch.randn(4, 10, 10)

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        return torch.softmax((q @ k.mT + bias).float(), -1).to(v.dtype) @ v

    run(forward, leaf(2, 4, 10, 8), leaf(2, 2, 10, 8), leaf(2, 2, 10, 8))


@program
def dropout() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, 8), nn.Dropout(0.5))
    run(model, torch.randn(16, 32), times=2)


@program
def convolutions_and_pooling() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 1), nn.Flatten(),
    )  # fmt: skip
    run(model, torch.randn(2, 3, 19, 19))


@program
def losses() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        cross = F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=2)
        return cross + F.smooth_l1_loss(x, p) + F.kl_div(x.log_softmax(1), p.softmax(1)) + F.huber_loss(x, p)

    run(forward, leaf(16, 9), torch.randint(0, 9, (16,)), torch.randn(16, 9))


@program
def root_mean_square_norm_and_rotation() -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        normal = (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(
            x.dtype
        ) * weight
        a, b = normal.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    run(forward, leaf(4, 10, 16, dtype=torch.bfloat16), leaf(16, dtype=torch.bfloat16), torch.randn(10, 8))


@program
def weights_used_twice() -> None:
    table, head = nn.Embedding(30, 16), nn.Linear(16, 30, bias=False)
    head.weight = table.weight

    def forward(i: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(F.relu(table(i))).flatten(0, 1), i.flatten())

    run(forward, torch.randint(0, 30, (4, 5)))


@program
def other_convolutions() -> None:
    model = nn.Sequential(
        nn.Conv1d(4, 8, 3, dilation=2, padding=2), nn.InstanceNorm1d(8, track_running_stats=True),
        nn.Conv1d(8, 8, 3, groups=8), nn.ELU(), nn.ConvTranspose1d(8, 4, 4, stride=2), nn.LeakyReLU(),
    )  # fmt: skip
    run(model, torch.randn(2, 4, 11), times=2)


@program
def channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=0.3), nn.Hardswish())
    model = model.to(memory_format=torch.channels_last)
    run(model, torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last), times=2)


@program
def a_mixture_of_experts() -> None:
    gate, up, down = leaf(8, 4), leaf(4, 8, 16), leaf(4, 16, 8)

    def forward(x: torch.Tensor) -> torch.Tensor:
        weights, chosen = (x @ gate).softmax(-1).topk(2, -1)
        hidden = F.silu(torch.einsum("nd,edh->neh", x, up))
        outputs = torch.einsum("neh,ehd->ned", hidden, down)
        picked = outputs.gather(1, chosen[..., None].expand(-1, -1, 8))
        return (picked * (weights / weights.sum(-1, keepdim=True))[..., None]).sum(1)

    run(forward, leaf(10, 8))


@program
def places_of_tokens_at_experts() -> None:
    """Two kernels assert the range of an index, and share the memory of what they assert."""

    def places(x: torch.Tensor) -> torch.Tensor:
        weight, expert = x.softmax(-1).max(-1)
        chosen = F.one_hot(expert, 4).to(x.dtype)
        place = ((chosen.cumsum(0) - 1) * chosen).sum(-1).long().clamp(max=5)
        return chosen[..., None] * F.one_hot(place, 6)[:, None] * weight[:, None, None]

    run(places, torch.randn(18, 4))


@program
def a_cache_of_keys_and_values() -> None:
    keys, values = torch.zeros(1, 2, 8, 4), torch.zeros(1, 2, 8, 4)

    @torch.compile
    def decode(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        keys.index_copy_(2, at, x * 2)
        values[:, :, at] = x + 1
        seen = torch.arange(8) <= at
        scores = (x @ keys.transpose(-1, -2) / 2).masked_fill(~seen, -float("inf"))
        return scores.softmax(-1) @ values

    with torch.no_grad():
        for step in range(3):
            decode(torch.randn(1, 2, 1, 4), torch.tensor([step]))


@program
def weights_that_are_computed() -> None:
    spectral = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
    model = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.ReLU(), spectral)
    run(model, torch.randn(4, 6), times=2)
