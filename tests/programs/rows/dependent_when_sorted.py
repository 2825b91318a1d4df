"""Functions that sort or select rows of a batch, in which a kernel makes rows depend on others."""

from __future__ import annotations

import torch
from tests.programs.rows.operators import doubled, running, split_sum, times
from tests.programs.rows.registry import Made, rows, variant
from tests.programs.rows.routing import expert_of, numbered, ordered, put_back


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
        order = expert_of(x).argsort(stable=True)
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
        chosen, result = expert_of(x), torch.zeros_like(x)
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
        number = numbered(expert_of(x))
        return doubled(x) * (number < 2)[:, None]

    return kept, (rows(9, 16),)


@variant("sort", cause="mixes-rows")
def left_in_order() -> Made:
    return lambda x: doubled(x[x[:, 0].argsort()]) + 1, (rows(9, 16),)
