"""A loss that one program computes as a mean, and the other as a sum divided by a number, also in parts."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import kernelscope


def _summed(scores: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    return F.cross_entropy(scores, targets, reduction="sum") / rows


def _row_by_row(scores: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    return F.cross_entropy(scores, targets, reduction="none").sum() / rows


def _by_hand(scores: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    return -scores.log_softmax(-1).gather(1, targets[:, None]).sum() / rows


def _squares(scores: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    wanted = F.one_hot(targets, scores.shape[1]).float()
    return F.mse_loss(scores, wanted, reduction="sum") / (rows * scores.shape[1])


def _mean(scores: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    return F.cross_entropy(scores, targets)


def _mean_of_squares(scores: torch.Tensor, targets: torch.Tensor, rows: int) -> torch.Tensor:
    return F.mse_loss(scores, F.one_hot(targets, scores.shape[1]).float())


LOSSES = {
    "summed": (_summed, _mean), "row by row": (_row_by_row, _mean), "by hand": (_by_hand, _mean),
    "squares": (_squares, _mean_of_squares),
}  # fmt: skip


def _step(loss, parts: int = 1, divisor: int = 12, factor: float = 1.0) -> None:
    torch.manual_seed(0)
    weight = (torch.randn(16, 30) * 0.3).requires_grad_()
    inputs, targets = torch.randn(12, 16), torch.arange(12)
    for number, (x, y) in enumerate(zip(inputs.chunk(parts), targets.chunk(parts), strict=True), start=1):
        made = loss(x @ weight, y, divisor)
        made = made * factor if number == parts and factor != 1 else made  # wrong: factor
        made.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_a_sum_that_becomes_a_mean_raises_no_alarm(name: str, parts: int) -> None:
    other, reference = LOSSES[name]
    result = kernelscope.compare(lambda: _step(reference), lambda: _step(other, parts))
    assert result.status == 0, result.details()
    assert result.shares["reference"] > 0.7, result.details()


@pytest.mark.parametrize("parts", [1, 3])
def test_a_wrong_divisor_is_named(parts: int) -> None:
    result = kernelscope.compare(lambda: _step(_mean), lambda: _step(_summed, parts, divisor=11))
    assert result.first is not None, result.details()
    assert result.first.call.origin[0].function == "_summed", result.details()
    assert result.first.call.phase == "forward", result.details()


def test_a_factor_after_it_is_named() -> None:
    result = kernelscope.compare(lambda: _step(_mean), lambda: _step(_summed, factor=1.01))
    assert result.first is not None, result.details()
    with open(__file__, encoding="utf-8") as text:
        wrong = next(number for number, line in enumerate(text, start=1) if "# wrong: factor" in line)
    assert result.first.call.origin[0].line == wrong, result.details()


def test_a_factor_of_one_part_raises_an_alarm() -> None:
    result = kernelscope.compare(lambda: _step(_mean), lambda: _step(_summed, 3, factor=1.01))
    assert result.status == 1, result.details()


def _weighed(loss, sizes: tuple[int, ...]) -> list[torch.Tensor]:
    """Parts of other sizes, each with its share of the loss; the losses are added up."""
    torch.manual_seed(0)
    weight = (torch.randn(16, 30) * 0.3).requires_grad_()
    inputs, targets, total = torch.randn(12, 16), torch.randn(12, 30), 0.0
    for x, y in zip(inputs.split(sizes), targets.split(sizes), strict=True):
        made = loss(x @ weight, y, len(x) / 12)
        made.backward()
        total = total + made.detach()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    return [total]


WEIGHED = {
    "sum": lambda x, y, share: (x - y).square().sum() / 360,
    "mean": lambda x, y, share: (x - y).square().mean() * share,
    "of rows": lambda x, y, share: (x - y).square().mean(-1).sum() / 12,
    "summed": lambda x, y, share: F.mse_loss(x, y, reduction="sum") / 360,
}


@pytest.mark.parametrize("sizes", [(12,), (5, 7), (4, 3, 5)], ids=str)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("sum", "mean"), ("sum", "of rows"), ("of rows", "sum"), ("summed", "of rows"), ("sum", "sum")],
)
def test_parts_of_unequal_size_raise_no_alarm(ours: str, theirs: str, sizes: tuple[int, ...]) -> None:
    reference, other = WEIGHED[ours], WEIGHED[theirs]
    result = kernelscope.compare(lambda: _weighed(reference, (12,)), lambda: _weighed(other, sizes))
    assert result.status == 0, result.details()
    assert result.shares["reference"] > 0.7, result.details()


@pytest.mark.parametrize(("ours", "theirs"), [("sum", "mean"), ("sum", "of rows"), ("sum", "sum")])
def test_a_wrong_share_of_unequal_parts_raises_an_alarm(ours: str, theirs: str) -> None:
    reference, other = WEIGHED[ours], WEIGHED[theirs]

    def wrong(x: torch.Tensor, y: torch.Tensor, share: float) -> torch.Tensor:
        return other(x, y, share) * (1.01 if len(x) == 7 else 1.0)

    result = kernelscope.compare(lambda: _weighed(reference, (12,)), lambda: _weighed(wrong, (5, 7)))
    assert result.status == 1, result.details()
