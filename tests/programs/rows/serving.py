"""Functions as servers and trainers have them: caches, attention, norms, quantisation, losses, routers."""

from __future__ import annotations

import torch
from tests.programs.rows.operators import doubled, shifted, split_sum
from tests.programs.rows.registry import Made, invariant, leaf, rows, variant
from torch.nn import functional as F

_WIDTH = 16


@variant("amax", "max", "aminmax", cause="mixes-rows")
def scores_shifted_by_the_largest_of_all() -> Made:
    """A softmax that takes the largest score of the batch, so that rows far below it lose digits."""

    def chances(x: torch.Tensor) -> torch.Tensor:
        raised = ((x - x.max()) * 3).exp()
        return raised / raised.sum(-1, keepdim=True)

    return chances, (rows(9, _WIDTH),)


@variant("split_sum", cause="operator", most=1e-4)
def score_of_a_reward_model() -> Made:
    weight = rows(_WIDTH, seed=6)

    def score(x: torch.Tensor) -> torch.Tensor:
        return split_sum(x.clamp(-2, 2) * weight).clamp(-1, 1)

    return score, (rows(9, _WIDTH),)


@variant("cat", "fused", "sum", "mean", cause="mixes-rows")
def keys_of_all_sequences() -> Made:
    """The cache of one sequence is read by all: keys are not divided by sequences."""

    def attend(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        scores = (q[:, None, None] * k[None]).sum(-1)
        return scores.flatten(1).amax(-1)

    return attend, (rows(9, _WIDTH), rows(9, 5, _WIDTH, seed=2))


@variant("native_batch_norm", "var_mean", "mean", "fused", cause="mixes-rows", ops="all")
def normed_over_the_batch() -> Made:
    """A norm over images and channels, in place of channels alone."""

    def normed(x: torch.Tensor) -> torch.Tensor:
        moved = x.transpose(0, 1).contiguous()
        return F.instance_norm(moved.flatten(1)[None]).view(moved.shape).transpose(0, 1) * 2

    return normed, (rows(9, 4, 6),)


@variant("shifted", cause=("mixes-rows", "operator"))
def tokens_of_the_row_before() -> Made:
    table = rows(20, _WIDTH, seed=4)

    def embedded(x: torch.Tensor) -> torch.Tensor:
        places = (x.abs() * 3).long().clamp(max=19)
        return table[shifted(places)].sum(1).tanh()

    return embedded, (rows(9, 3),)


@variant("topk", "kthvalue", "sort", "fused", cause="mixes-rows", ops="all")
def best_of_the_batch() -> Made:
    """Scores that are not among the best three of the batch become zero."""

    def kept(x: torch.Tensor) -> torch.Tensor:
        score = x.sum(-1)
        least = score.topk(min(3, score.shape[0])).values[-1]
        return torch.where(score >= least, score, 0.0)

    return kept, (rows(9, _WIDTH),)


@variant("mean", "div", "fused", cause=("divides-by-rows", "mixes-rows"))
def gradient_of_a_mean_of_squares() -> Made:
    """Each row's gradient is divided by the number of rows."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x.sin(), torch.zeros_like(x))

    return loss, (leaf(9, _WIDTH),)


@variant("abs", "amax", "max", "fused", cause="mixes-rows", dim=1)
def one_scale_for_eight_bits() -> Made:
    """Sequence first; the scale is that of the largest of all sequences."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax((1, 2), keepdim=True) / 127
        return (x / scale).round().clamp(-128, 127) * scale

    return rounded, (rows(5, 9, _WIDTH),)


@invariant()
def rotary_positions() -> Made:
    angles = torch.arange(6)[:, None] * 10.0 ** -torch.arange(4)

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x.unflatten(-1, (2, -1)).unbind(-2)
        s, c = angles.sin().to(x.device), angles.cos().to(x.device)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    return turned, (rows(9, 6, 8),)


@invariant()
def cache_of_each_sequence() -> Made:
    def written(cache: torch.Tensor, new: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        number = torch.arange(cache.shape[1], device=cache.device)
        return torch.where((number == place[:, None])[..., None], new[:, None], cache).amax(1)

    return written, (rows(9, 6, 4), rows(9, 4, seed=1), torch.arange(9) % 6)


@invariant(ops="all")
def chosen_token() -> Made:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        kept = x.masked_fill(x < x.topk(3).values[:, -1:], -torch.inf)
        return kept.argmax(-1)

    return chosen, (rows(9, _WIDTH),)


@invariant(dim=1)
def states_of_sequences_first() -> Made:
    def states(x: torch.Tensor) -> torch.Tensor:
        state, made = torch.zeros_like(x[0]), []
        for step in x.unbind(0):
            state = torch.tanh(state * 0.5 + step)
            made.append(state)
        return torch.stack(made)

    return states, (rows(5, 9, _WIDTH),)


@invariant()
def scale_of_each_row() -> Made:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().clamp(-128, 127).to(torch.int8).float() * scale

    return rounded, (rows(9, _WIDTH),)


@invariant()
def weighted_by_a_router() -> Made:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        best, which = x[:, :4].topk(2)
        shares = torch.zeros_like(x[:, :4]).scatter(1, which, best * 2)
        return doubled(x)[:, :4] * shares

    return mixed, (rows(9, _WIDTH),)


@invariant()
def gradient_of_a_sum_of_squares() -> Made:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum()

    return loss, (leaf(9, _WIDTH),)


@invariant(dim=(0, None))
def slopes_given_beside_the_batch() -> Made:
    """The second argument is as large as the batch, and has no rows."""

    def biased(x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        return (x + slopes[:, None]).abs().sqrt()

    return biased, (rows(9, 9, 4), rows(9, seed=3))
