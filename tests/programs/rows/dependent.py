"""Functions of a batch in which a kernel makes rows depend on others."""

from __future__ import annotations

import torch
from tests.programs.rows.operators import leaky_pad, positive, racing, scaled_by_batch, shifted, split_sum
from tests.programs.rows.registry import Made, leaf, rows, seeded, variant
from torch import nn


@variant("addmm", "mm", cause="library-call")
def linear() -> Made:
    return seeded(nn.Linear(64, 32)), (leaf(9, 64),)


@variant("split_sum", cause="operator")
def split_by_size() -> Made:
    return lambda x: split_sum(x.exp()).tanh(), (rows(9, 33),)


@variant("leaky_pad", cause="mixes-rows")
def padding_leaks() -> Made:
    return lambda x: leaky_pad(x * 2).relu() + 1, (rows(9, 16),)


@variant("shifted", cause=("mixes-rows", "operator", "library-call"))
def index_error() -> Made:
    return lambda x: shifted(x.sin()) * 3, (rows(9, 16),)


@variant("racing", cause="operator")
def order_of_additions() -> Made:
    return lambda x: racing(x.exp()) * 2, (rows(9, 33),)


@variant("scaled_by_batch", cause="mixes-rows")
def one_scale_for_all() -> Made:
    return lambda x: scaled_by_batch(x + 1).cos(), (rows(9, 16),)


@variant("mean", cause="mixes-rows")
def centred() -> Made:
    return lambda x: ((x - x.mean(0)) * 2).relu(), (leaf(9, 24),)


@variant("mean", cause="mixes-rows")
def centred_before_an_operator_of_any_size() -> Made:
    return lambda x: positive(x.sin() * 2 - x.mean(0)) + 1, (rows(9, 16),)


@variant("batch_norm", "var_mean", "rsqrt", "getitem", cause="mixes-rows")
def batch_norm() -> Made:
    model = nn.Sequential(nn.BatchNorm1d(24), nn.ReLU())
    return model, (rows(9, 24),)


@variant("softmax", "amax", "exp", cause="mixes-rows")
def softmax_over_rows() -> Made:
    return lambda x: x.tanh().softmax(0) * 2, (leaf(9, 24),)


@variant("cumsum", cause="mixes-rows")
def cumulative() -> Made:
    return lambda x: x.cumsum(0) + 1, (rows(9, 24),)


@variant("amax", "max", cause="mixes-rows")
def by_the_largest() -> Made:
    return lambda x: x / x.abs().max() + x, (leaf(9, 24),)


@variant("roll", "add", "index", "fused", cause="mixes-rows")
def rolled() -> Made:
    return lambda x: (x + x.roll(1, 0)).relu(), (leaf(9, 24),)


@variant("sort", cause=("mixes-rows", "library-call"))
def sorted_rows() -> Made:
    return lambda x: x.sort(0).values * 2, (rows(9, 8),)


@variant("mm", "bmm", "softmax", cause=("library-call", "mixes-rows"))
def contrast() -> Made:
    return lambda x: (x @ x.t() * 0.1).softmax(1) @ x, (rows(9, 40),)


@variant("mean", "div", "fused", cause="divides-by-rows")
def mean_loss() -> Made:
    return lambda x: (x.sin() * x).sum(1).mean(), (leaf(9, 24),)


@variant("mm", "addmm", cause="library-call")
def flattened() -> Made:
    layer = seeded(nn.Linear(48, 33, bias=False))
    return lambda x: layer(x.flatten(0, 1).relu()).unflatten(0, (-1, 1)).sum(1), (rows(9, 1, 48),)


@variant("mean", cause="mixes-rows", dim=1)
def second_dimension() -> Made:
    return lambda x: (x * 2 - x.mean(1, keepdim=True)).relu(), (rows(4, 9, 6),)


@variant("mm", cause="library-call", ops="all")
def eager_product() -> Made:
    weight = rows(64, 32, seed=3)
    return lambda x: (x.relu() @ weight).sigmoid(), (rows(9, 64),)


@variant("mean", cause="mixes-rows", ops="all")
def eager_mean() -> Made:
    return lambda x: (x * 3 - x.mean(0)).relu(), (leaf(9, 16),)


@variant("fused", "where", "sum", "mul", "mean", cause="mixes-rows")
def unmasked_padding() -> Made:
    return lambda x, length: x / length.max().float() + 1, (rows(9, 12), torch.arange(3, 12))


@variant("sum", cause=("other-kernel", "split-reduction"))
def split_in_the_program() -> Made:
    def total(x: torch.Tensor) -> torch.Tensor:
        return (x[:, :16].sum(1) + x[:, 16:].sum(1)) * 2 if x.shape[0] > 4 else x.sum(1) * 2

    return total, (rows(9, 33),)


@variant("arange", "iota", "index", cause="position")
def number_of_the_row() -> Made:
    table = rows(20, 8, seed=6)
    return lambda x: x + table[torch.arange(x.shape[0])], (rows(9, 8),)


@variant("topk", cause="mixes-rows")
def threshold_of_the_batch() -> Made:
    return lambda x: x * (x > x.sum(1).topk(2).values.min()), (rows(9, 8),)


def _times_a_number_that_was_read(x: torch.Tensor) -> torch.Tensor:
    largest = (x * 2).amax().item()
    return (x + 1) * largest


@variant("amax", cause="mixes-rows")
def number_that_was_read() -> Made:
    return _times_a_number_that_was_read, (rows(9, 16),)


@variant("amax", cause="mixes-rows", ops="all")
def number_that_was_read_eagerly() -> Made:
    return _times_a_number_that_was_read, (rows(9, 16),)
