"""Functions of a batch in which no row depends on others."""

from __future__ import annotations

import torch
from tests.programs.rows.operators import doubled, positive, row_sum
from tests.programs.rows.registry import _DEVICE, Made, invariant, leaf, rows
from tests.programs.rows.routing import expert_of, numbered, ordered, put_back
from torch import nn
from torch.nn import functional as F


@invariant()
def before_an_operator_of_any_size() -> Made:
    return lambda x: positive(x.sin() * 2) + 1, (rows(9, 16),)


@invariant()
def pointwise() -> Made:
    return lambda x: (x.abs() * 2 + 1).relu(), (leaf(9, 24),)


@invariant()
def clamped() -> Made:
    return lambda x, low: torch.where(x > 0, x.clamp(max=1), low[:, None]) * 2, (leaf(9, 24), rows(9))


@invariant()
def row_softmax() -> Made:
    return lambda x: x.softmax(1) * 2, (leaf(9, 32),)


@invariant()
def rms_norm() -> Made:
    weight = nn.Parameter(rows(32, seed=2))
    return lambda x: x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight, (leaf(9, 32),)


@invariant()
def custom_row_sum() -> Made:
    return lambda x: row_sum(x * 2) + 1, (rows(9, 33),)


@invariant()
def flattened_tokens() -> Made:
    return lambda x: (x.flatten(0, 1) * 2).relu().unflatten(0, (-1, 5)).sum(2), (leaf(9, 5, 16),)


@invariant()
def transposed() -> Made:
    return lambda x: (x.transpose(0, 1).contiguous() + 1).cumsum(0).transpose(0, 1), (rows(9, 6, 8),)


@invariant()
def inner_batch() -> Made:
    return lambda x: (x.transpose(0, 1).reshape(-1, 8) * 3).abs().reshape(6, -1, 8).sum(0), (rows(9, 6, 8),)


@invariant()
def batch_norm_in_eval() -> Made:
    model = nn.Sequential(nn.BatchNorm1d(24), nn.ReLU()).eval()
    return model, (rows(9, 24),)


@invariant()
def embedding() -> Made:
    table = nn.Embedding(20, 16).to(_DEVICE.get())
    return lambda tokens: table(tokens) * 2, (torch.arange(45).reshape(9, 5) % 20,)


@invariant()
def gather_of_last() -> Made:
    def last(x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        return x[torch.arange(x.shape[0]), length] * 2

    return last, (rows(9, 7, 8), torch.arange(9) % 7)


@invariant()
def masked_mean() -> Made:
    def mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)

    return mean, (rows(9, 7, 8), (rows(9, 7, seed=5) > 0).float())


@invariant()
def sort_within_rows() -> Made:
    return lambda x: x.sort(1).values * 2, (rows(9, 8),)


@invariant()
def top_of_row() -> Made:
    return lambda x: (x.argmax(1), x.amax(1) + 1), (rows(9, 30),)


@invariant()
def sum_loss() -> Made:
    return lambda x: (x.sin() * x).sum(), (leaf(9, 24),)


@invariant()
def pooled() -> Made:
    return lambda x: F.max_pool2d(x, 2).flatten(1) * 2, (leaf(9, 2, 8, 8),)


@invariant(dim=1)
def along_the_second() -> Made:
    return lambda x: x.cumsum(0) * 2, (rows(6, 9, 4),)


@invariant()
def bfloat16_gelu() -> Made:
    return lambda x: F.gelu(x, approximate="tanh") + x, (rows(9, 32).bfloat16(),)


@invariant()
def dropout() -> Made:
    return nn.Sequential(nn.Dropout(0.5), nn.ReLU()), (leaf(9, 8),)


@invariant()
def routed() -> Made:
    weights, gate = rows(4, 16, 16, seed=7), rows(16, 4, seed=8)

    def experts(x: torch.Tensor) -> torch.Tensor:
        chosen = (x[:, :, None] * gate).sum(1).argmax(1)
        order = chosen.argsort(stable=True)
        made = torch.stack([(x[order][:, :, None] * weight).sum(1) for weight in weights])
        result = torch.empty_like(x)
        result[order] = made[chosen[order], torch.arange(x.shape[0])]
        return result

    return experts, (rows(9, 16),)


@invariant()
def sorted_and_put_back() -> Made:
    def sums(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        return put_back(row_sum(doubled(x[order])) + 1, order)

    return sums, (rows(9, 16),)


@invariant()
def two_experts() -> Made:
    def experts(x: torch.Tensor) -> torch.Tensor:
        score, chosen = (x[:, :4] * 2).topk(2)
        order = chosen.flatten().argsort(stable=True)
        row = order // 2
        made = doubled(x[row]) * score.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, row, made)

    return experts, (rows(9, 16),)


@invariant()
def a_place_with_each_expert() -> Made:
    def experts(x: torch.Tensor) -> torch.Tensor:
        chosen = expert_of(x)
        place = chosen * x.shape[0] + numbered(chosen)
        places = x.new_zeros(4 * x.shape[0], x.shape[1]).index_copy(0, place, x)
        return doubled(places).relu()[place]

    return experts, (rows(9, 16),)


@invariant(ops="all")
def selected_rows() -> Made:
    def some(x: torch.Tensor) -> torch.Tensor:
        selected = (x[:, 0] > -1).nonzero()[:, 0]
        result = torch.zeros_like(x)
        result[selected] = doubled(x[selected]).relu()
        return result

    return some, (rows(9, 16),)


@invariant(ops="all")
def each_expert() -> Made:
    weights = rows(4, 16, seed=9)

    def experts(x: torch.Tensor) -> torch.Tensor:
        chosen, result = expert_of(x), torch.zeros_like(x)
        for expert, weight in enumerate(weights):
            mine = (chosen == expert).nonzero()[:, 0]
            result[mine] = doubled(x[mine]) * weight
        return result

    return experts, (rows(9, 16),)


@invariant()
def rows_that_are_nearly_equal() -> Made:
    def sums(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        return put_back(doubled(doubled(x[order])), order)

    return sums, (rows(9, 16) * 1e-3 + 1,)


@invariant()
def equal_rows_sorted() -> Made:
    def sums(x: torch.Tensor) -> torch.Tensor:
        order = x.sum(1).argsort()
        return put_back(row_sum(doubled(x[order])), order)

    return sums, (torch.arange(9)[:, None] // 3 * torch.ones(16),)


@invariant()
def equal_rows_sorted_by_other_code() -> Made:
    def sums(x: torch.Tensor) -> torch.Tensor:
        order = ordered(x.sum(1), 3)
        return put_back(row_sum(doubled(x[order])), order)

    return sums, (torch.arange(9)[:, None] // 3 * torch.ones(16),)


@invariant()
def only_selected_rows() -> Made:
    return lambda x: (x * 2)[x[:, 0] > -0.5].relu(), (rows(9, 16),)


@invariant()
def copies_in_order() -> Made:
    def both(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        made = doubled(torch.cat([x, x[order]]))
        return made[: x.shape[0]] + put_back(made[x.shape[0] :], order)

    return both, (rows(9, 16),)


@invariant()
def sorted_numbers() -> Made:
    def ranked(x: torch.Tensor) -> torch.Tensor:
        values, order = x[:, 0].sort()
        return put_back(doubled(values) + 1, order)[:, None] * x

    return ranked, (rows(9, 16),)


@invariant(ops="all")
def eager_pointwise() -> Made:
    return lambda x: (x.exp() * 2).softmax(1), (leaf(9, 16),)


@invariant()
def masked_attention_scores() -> Made:
    def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        products = (q[:, :, None, :] * k[:, None, :, :]).sum(-1)
        return products.masked_fill(q.new_ones(5, 5).triu(1).bool(), float("-inf")).softmax(-1)

    return scores, (rows(9, 5, 8), rows(9, 5, 8, seed=4))
