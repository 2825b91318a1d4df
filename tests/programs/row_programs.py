"""Functions of a batch: in one half a kernel makes rows depend on others, in the other half none does.

Each is made anew: (function, arguments). Of the first half it is known what the first such kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class RowProgram:
    make: Callable[[], Made]
    names: tuple[str, ...] = ()  # one of them is in the kernel's name, or one of its nodes
    causes: tuple[str, ...] = ()
    ops: str = "graph"
    dim: Any = 0
    most: float = float("inf")  # by which that kernel's result for a row differs


VARIANT: dict[str, RowProgram] = {}
INVARIANT: dict[str, RowProgram] = {}


def variant(
    *names: str,
    cause: str | tuple[str, ...] = (),
    ops: str = "graph",
    dim: Any = 0,
    most: float = float("inf"),
) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        causes = (cause,) if isinstance(cause, str) else cause
        VARIANT[make.__name__] = RowProgram(make, names, causes, ops, dim, most)
        return make

    return add


def invariant(ops: str = "graph", dim: Any = 0) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        INVARIANT[make.__name__] = RowProgram(make, ops=ops, dim=dim)
        return make

    return add


_DEVICE = ContextVar("device", default="cpu")


def made_on(program: RowProgram, device: str) -> Made:
    token = _DEVICE.set(device)
    try:
        fn, args = program.make()
    finally:
        _DEVICE.reset(token)
    moved = tuple(
        a.to(device) if isinstance(a, torch.Tensor) and a.device.type != device else a for a in args
    )
    return (fn.to(device) if isinstance(fn, nn.Module) else fn), moved


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(_DEVICE.get())


def leaf(*shape: int) -> torch.Tensor:
    return rows(*shape).requires_grad_()


def _seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module.to(_DEVICE.get())


# -- operators of our own, as a library would have them ------------------------------------------------------


@torch.library.custom_op("kernelscope_rows::split_sum", mutates_args=())
def split_sum(x: torch.Tensor) -> torch.Tensor:
    """In two halves when there are many rows."""
    if x.shape[0] > 4:
        half = x.shape[1] // 2
        return x[:, :half].sum(1) + x[:, half:].sum(1)
    total = x.new_zeros(x.shape[0])
    for column in range(x.shape[1]):
        total += x[:, column]
    return total


@torch.library.custom_op("kernelscope_rows::leaky_pad", mutates_args=())
def leaky_pad(x: torch.Tensor) -> torch.Tensor:
    """Each row gets the first element of the next one; the last row gets zero."""
    return torch.cat([x, F.pad(x[1:, :1], (0, 0, 0, 1))], 1)


@torch.library.custom_op("kernelscope_rows::shifted", mutates_args=())
def shifted(x: torch.Tensor) -> torch.Tensor:
    """An index error: from the fifth row on, the row before."""
    index = torch.arange(x.shape[0], device=x.device)
    index[4:] -= 1
    return x[index].clone()


@torch.library.custom_op("kernelscope_rows::racing", mutates_args=())
def racing(x: torch.Tensor) -> torch.Tensor:
    """Adds up columns in an order that depends on the number of rows, as atomics do."""
    total = x.new_zeros(x.shape[0])
    for column in range(x.shape[1]):
        total += x[:, (column * 7 + x.shape[0]) % x.shape[1]]
    return total


@torch.library.custom_op("kernelscope_rows::scaled_by_batch", mutates_args=())
def scaled_by_batch(x: torch.Tensor) -> torch.Tensor:
    """One scale for the whole batch, as for fp8."""
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


@torch.library.custom_op("kernelscope_rows::row_sum", mutates_args=())
def row_sum(x: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(x.shape[0])
    for column in range(x.shape[1]):
        total += x[:, column]
    return total


@torch.library.custom_op("kernelscope_rows::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("kernelscope_rows::running", mutates_args=())
def running(x: torch.Tensor) -> torch.Tensor:
    """Each row gets all rows before it."""
    return x.cumsum(0)


@torch.library.custom_op("kernelscope_rows::times", mutates_args=())
def times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product whose order of additions depends on the number of rows, as that of a library does."""
    total = x.new_zeros(x.shape[0], weight.shape[1])
    for k in range(x.shape[1]):
        k = (k * 7 + x.shape[0]) % x.shape[1]
        total += x[:, k, None] * weight[k]
    return total


for _operator in (split_sum, racing, row_sum):
    _operator.register_fake(lambda x: x.new_empty(x.shape[0]))
for _operator in (shifted, doubled, running):
    _operator.register_fake(torch.empty_like)
times.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[1]))
scaled_by_batch.register_fake(torch.empty_like)
leaky_pad.register_fake(lambda x: x.new_empty(x.shape[0], x.shape[1] + 1))


# -- a kernel makes rows depend on others --------------------------------------------------------------------


@variant("addmm", "mm", cause="library-call")
def linear() -> Made:
    return _seeded(nn.Linear(64, 32)), (leaf(9, 64),)


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
    layer = _seeded(nn.Linear(48, 33, bias=False))
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


# -- the same where the program sorts or selects rows ------------------------------------------------------


def put_back(rows_in_order: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(rows_in_order)
    result[order] = rows_in_order
    return result


def _chosen(x: torch.Tensor) -> torch.Tensor:
    """One of four experts for each row."""
    return (x[:, :4] * 3).argmax(1)


def _numbered(chosen: torch.Tensor) -> torch.Tensor:
    """For each row: how many rows before it have chosen the same expert."""
    return (F.one_hot(chosen, 4).cumsum(0) - 1).gather(1, chosen[:, None])[:, 0]


@variant("split_sum", cause="operator", most=1e-4)
def split_after_sorting() -> Made:
    def total(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        return put_back(split_sum(x[order] * 2), order)

    return total, (rows(9, 33),)


@variant("times", cause="operator", most=1e-4)
def product_of_routed_rows() -> Made:
    weight = rows(16, 16, seed=7)

    def experts(x: torch.Tensor) -> torch.Tensor:
        order = _chosen(x).argsort(stable=True)
        return put_back(times(x[order], weight).relu(), order)

    return experts, (rows(9, 16),)


@variant("times", cause="operator", most=1e-4)
def product_of_two_experts() -> Made:
    weight = rows(16, 16, seed=7)

    def experts(x: torch.Tensor) -> torch.Tensor:
        score, chosen = (x[:, :4] * 2).topk(2)
        order = chosen.flatten().argsort(stable=True)
        row = order // 2
        made = times(x[row], weight) * score.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, row, made)

    return experts, (rows(9, 16),)


@variant("split_sum", cause="operator", ops="all", most=1e-4)
def split_of_selected_rows() -> Made:
    def total(x: torch.Tensor) -> torch.Tensor:
        selected = (x[:, 0] > -1).nonzero()[:, 0]
        result = torch.zeros(x.shape[0], device=x.device)
        result[selected] = split_sum(x[selected])
        return result

    return total, (rows(9, 33),)


@variant("times", cause="operator", ops="all", most=1e-4)
def product_of_each_expert() -> Made:
    weights = rows(4, 16, 16, seed=9)

    def experts(x: torch.Tensor) -> torch.Tensor:
        chosen, result = _chosen(x), torch.zeros_like(x)
        for expert, weight in enumerate(weights):
            result[chosen == expert] = times(x[chosen == expert], weight)
        return result

    return experts, (rows(9, 16),)


@variant("times", cause="operator")
def products_side_by_side() -> Made:
    """The kernel that puts the products into one buffer writes their values once more."""
    weights = rows(3, 16, 8, seed=5)

    def chosen_product(x: torch.Tensor) -> torch.Tensor:
        made = torch.stack([times(x, weight) for weight in weights], 1)
        return made[torch.arange(x.shape[0], device=x.device), x[:, :3].argmax(1)]

    return chosen_product, (rows(9, 16),)


@variant("mean", cause="mixes-rows", most=4)
def mean_of_sorted_rows() -> Made:
    def centred_in_order(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        some = doubled(x[order])
        return put_back(some - some.mean(0), order)

    return centred_in_order, (rows(9, 24),)


@variant("mean", cause="mixes-rows", most=4)
def mean_of_rows_sorted_by_other_code() -> Made:
    def centred_in_order(x: torch.Tensor) -> torch.Tensor:
        order = ordered(x[:, 0], 1)
        some = doubled(x[order])
        return put_back(some - some.mean(0), order)

    return centred_in_order, (rows(9, 24),)


@variant("times", cause="operator", most=1e-4)
def product_of_rows_sorted_by_other_code() -> Made:
    weight = rows(16, 16, seed=7)

    def product(x: torch.Tensor) -> torch.Tensor:
        order = ordered(x[:, 0], 1)
        return put_back(times(x[order], weight), order)

    return product, (rows(9, 16),)


@variant("running", cause="mixes-rows")
def running_sum_of_sorted_rows() -> Made:
    def total(x: torch.Tensor) -> torch.Tensor:
        order = x[:, 0].argsort()
        return put_back(running(doubled(x[order])) + 1, order)

    return total, (rows(9, 24),)


@variant("cumsum", cause="mixes-rows")
def experts_of_limited_capacity() -> Made:
    def kept(x: torch.Tensor) -> torch.Tensor:
        number = _numbered(_chosen(x))
        return doubled(x) * (number < 2)[:, None]

    return kept, (rows(9, 16),)


@variant("sort", cause="mixes-rows")
def left_in_order() -> Made:
    return lambda x: doubled(x[x[:, 0].argsort()]) + 1, (rows(9, 16),)


# -- none does --------------------------------------------------------------------------------------------


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
        chosen = _chosen(x)
        place = chosen * x.shape[0] + _numbered(chosen)
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
        chosen, result = _chosen(x), torch.zeros_like(x)
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


def ordered(keys: torch.Tensor, most: int) -> torch.Tensor:
    """By other code when there are few rows."""
    if keys.shape[0] > most:
        return keys.argsort(stable=True)
    before = (keys[:, None] > keys) | (
        (keys[:, None] == keys) & torch.ones_like(keys[:, None] * keys).tril(-1).bool()
    )
    return torch.zeros_like(before[0], dtype=torch.int64).scatter(
        0, before.sum(1), torch.arange(keys.shape[0], device=keys.device)
    )


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
