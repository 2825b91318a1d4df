"""Whether two ways of drawing random numbers draw from the same distribution, by many runs of each.

Numbers of one run may depend on each other, as where dropout drops whole channels. So runs are compared,
and not numbers: each feature of a run (the share of its numbers below some bound, the average of one
element) has a mean and a variance over the runs. What looks wrong is drawn a second time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Draw = Callable[[int], torch.Tensor]  # the numbers of one run, flat; another run for each number

_NUMBERS = 1 << 16  # in all runs together
_RUNS = (32, 600)  # at least, at most
SECONDS_OF_A_SIDE = 0.4  # of one side; fewer runs at least if it takes longer
_FEWEST = 16
_SECONDS_AGAIN = 3.0  # where a single run looks wrong
_ELEMENTS = 4096  # of one run are looked at
_BOUNDS = 48
_FAR = 7.0  # standard errors
_BEYOND = 20  # runs with a number beyond all of the other side: one in 2**20 by chance


def described(argument: Any) -> str:
    """What a draw depends on: not the numbers in a tensor, and not how many."""
    if isinstance(argument, torch.Tensor):
        return f"{argument.dtype} {argument.dim()}"
    return f"{argument}"


def difference(eager: Draw, other: Draw, eps: float) -> str:
    """How `other` draws otherwise than eager; empty if it does not. `eps` is one rounding of the numbers."""
    reason = ""
    for first in (0, 1_000_000):
        ours = _runs(eager, first)
        theirs = _runs(other, first + 500_000)
        if ours.shape[1] != theirs.shape[1]:
            return f"it gives {theirs.shape[1]} numbers, and eager {ours.shape[1]}"
        if ours.shape[1] == 0:
            return ""
        reason = next(_differences(ours, theirs, eps), "")
        if not reason:
            return ""
    return reason


def improbable(eager: Draw, made: torch.Tensor, eps: float) -> str:
    """Why these numbers, of a single run, do not come from what eager draws; empty if they may."""
    ours, theirs = _runs(eager, 0), _seen(made)[None]
    if ours.shape[1] != theirs.shape[1]:
        return f"it has {theirs.shape[1]} numbers, and in eager {ours.shape[1]}"
    if ours.shape[1] < 16 or not _why_improbable(ours, theirs, eps):
        return ""  # of few numbers nothing can be told
    # What is rare may be in this run and in none of a few others.
    more = _runs(eager, 1_000_000, at_least=_RUNS[1], seconds=_SECONDS_AGAIN)
    return _why_improbable(torch.cat([ours, more]), theirs, eps)


def _why_improbable(ours: torch.Tensor, theirs: torch.Tensor, eps: float) -> str:
    grid = _grid(ours, eps)
    for beyond, words in _beyond(ours, theirs, grid):
        if beyond.float().mean() > 0.3:
            return f"{words}, in {100 * float(beyond.float().mean()):.0f} % of the numbers"
    for bound in _bounds(ours):
        is_common = 0.05 < float((ours <= bound).double().mean()) < 0.95
        if is_common and (reason := _share_below(ours, theirs, bound, grid)):
            return reason
    return ""


def _runs(draw: Draw, first: int, at_least: int = _RUNS[0], seconds: float = 0.0) -> torch.Tensor:
    """One row for each run."""
    begin, seconds = time.thread_time(), seconds or SECONDS_OF_A_SIDE
    rows = [_seen(draw(first))]
    many = min(max(_NUMBERS // max(len(rows[0]), 1), at_least), _RUNS[1])
    while len(rows) < many and (len(rows) < _FEWEST or time.thread_time() - begin < seconds):
        rows.append(_seen(draw(first + len(rows))))
    return torch.stack(rows)


def _seen(numbers: torch.Tensor) -> torch.Tensor:
    """The first ones, and some of all others."""
    numbers = numbers.detach().flatten().cpu()
    if len(numbers) > _ELEMENTS:
        half = _ELEMENTS // 2
        places = torch.linspace(half, len(numbers) - 1, half, dtype=torch.float64).long()
        numbers = torch.cat([numbers[:half], numbers[places]])
    return numbers.double()


def _differences(ours: torch.Tensor, theirs: torch.Tensor, eps: float) -> Iterator[str]:
    grid = _grid(ours, eps)
    if _most_alike(theirs) == 1 and _most_alike(ours) <= 0.5:
        yield "it gives the same numbers in each run, so it draws none, but eager draws new ones each time"
    for beyond, words in _beyond(ours, theirs, grid):
        if int(beyond.any(1).sum()) >= _BEYOND:
            yield words
    for name, (one, other) in {
        "NaN": (ours.isnan(), theirs.isnan()),
        "inf": (ours == math.inf, theirs == math.inf),
        "-inf": (ours == -math.inf, theirs == -math.inf),
    }.items():
        if float(_standard(one.double().mean(1), other.double().mean(1)).abs()) > _FAR:
            yield f"the share of {name} in its numbers differs"
    for bound in _bounds(ours):
        if reason := _share_below(ours, theirs, bound, grid):
            yield reason
    yield from _moments(ours, theirs, grid.near)
    if reason := _each_average(ours, theirs, grid.near):
        yield reason
    many, few = (sum(len(set(row.tolist())) for row in side[:16]) / 16 for side in (ours, theirs))
    if few * 4 < many:
        yield f"it draws {few:.0f} different numbers, and eager {many:.0f}"


def _most_alike(runs: torch.Tensor) -> float:
    """The share of runs that give the same numbers, of those that most give."""
    counts = torch.unique(runs.nan_to_num(), dim=0, return_counts=True)[1]
    return float(counts.max()) / len(runs)


@dataclass(frozen=True)
class _Grid:
    """Numbers of few digits lie on a grid, which need not be eager's."""

    near: float  # for numbers of usual size
    eps: float

    def around(self, number: float) -> float:
        """How far apart two numbers of this size may be: dropout multiplies in one step or in two."""
        return self.near + (2 * self.eps * abs(number) if math.isfinite(number) else 0.0)


def _grid(ours: torch.Tensor, eps: float) -> _Grid:
    finite = ours[ours.isfinite()].abs()
    usual = float(finite.median() + finite.mean().clamp(max=1e30)) if len(finite) else 0.0
    return _Grid(4 * eps * usual, eps)


def _beyond(ours: torch.Tensor, theirs: torch.Tensor, grid: _Grid) -> Iterator[tuple[torch.Tensor, str]]:
    """Numbers where eager has none; infinite ones only where eager has no infinite number at all."""
    for infinite in (math.inf, -math.inf):
        if not bool((ours == infinite).any()):
            yield theirs == infinite, f"it draws {infinite}, and eager does not"
    finite, is_finite = ours[ours.isfinite()], theirs.isfinite()
    if not len(finite) or not bool(is_finite.any()):
        return
    low, high = float(finite.min()), float(finite.max())
    top, bottom = float(theirs[is_finite].max()), float(theirs[is_finite].min())
    above, below = (
        is_finite & (theirs > high + grid.around(high)),
        is_finite & (theirs < low - grid.around(low)),
    )
    yield above, f"it draws numbers up to {top:.4g}, but eager only up to {high:.4g}"
    yield below, f"it draws numbers down to {bottom:.4g}, but eager only down to {low:.4g}"


def _bounds(ours: torch.Tensor) -> list[float]:
    ordered = ours[~ours.isnan()].sort().values
    if not len(ordered):
        return []
    places = torch.linspace(0, len(ordered) - 1, _BOUNDS, dtype=torch.float64).long()
    return sorted(set(ordered[places].tolist()))


def _share_below(ours: torch.Tensor, theirs: torch.Tensor, bound: float, grid: _Grid) -> str:
    share = (ours <= bound).double().mean(1)
    more, less = ((theirs <= bound + way * grid.around(bound)).double().mean(1) for way in (1, -1))
    one_number = 1 / ours.shape[1]
    if all(float(_standard(*pair, one_number)) <= _FAR for pair in ((share, more), (less, share))):
        return ""
    other = more if float(share.mean()) > float(more.mean()) else less
    percent = [f"{100 * float(each.mean()):.6g} %" for each in (other, share)]
    return f"{percent[0]} of its numbers are at most {bound:.4g}, but {percent[1]} of the numbers in eager"


def _standard(one: torch.Tensor, other: torch.Tensor, step: float = 0.0) -> torch.Tensor:
    """By how many standard errors the mean of one is above that of the other; a side may be a single run.

    Where one number is a `step`, rare ones make an error of at least that, though no run has any.
    """
    spread = one.var() if len(one) > 1 else other.var()
    others = other.var() if len(other) > 1 else one.var()
    error = (spread / len(one) + others / len(other)).sqrt()
    least = step / min(len(one), len(other)) ** 0.5
    return (one.mean() - other.mean()) / error.clamp(min=max(least, 1e-6))


def _moments(ours: torch.Tensor, theirs: torch.Tensor, near: float) -> Iterator[str]:
    """Mean and spread of each run, without the tails: they show a factor that no single bound does."""
    one, other = _without_tails(ours, theirs)
    if not len(one):
        return
    center = one.mean()
    for words, power in (("average", 1), ("average square", 2)):
        mine, yours = (((side - center) ** power).mean(1) for side in (one, other))
        allowed = near * power * (1 + float((one - center).abs().amax()))
        apart = float((mine.mean() - yours.mean()).abs())
        if apart > allowed and float(_standard(mine, yours).abs()) > _FAR:
            means = float(yours.mean()), float(mine.mean())
            yield f"the {words} of its numbers is {means[0]:.4g}, but {means[1]:.4g} in eager"


def _without_tails(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ordered = ours[ours.isfinite()].sort().values
    if not len(ordered):
        return ours[:0], theirs[:0]
    low, high = float(ordered[len(ordered) // 50]), float(ordered[-1 - len(ordered) // 50])
    return ours.nan_to_num().clamp(low, high), theirs.nan_to_num().clamp(low, high)


def _each_average(ours: torch.Tensor, theirs: torch.Tensor, near: float) -> str:
    """Whether elements have other averages, though all of them together have the same."""
    one, other = _without_tails(ours, theirs)
    if not len(one):
        return ""
    apart = ((one.mean(0) - other.mean(0)).abs() - near).clamp(min=0)
    error = (one.var(0) / len(one) + other.var(0) / len(other)).sqrt().clamp(min=1e-9 + near)
    away = float((apart / error).clamp(max=100).square().mean())
    if away <= 1.5 + 50 / ours.shape[1] ** 0.5:
        return ""
    worst = int((apart / error).argmax())
    means = float(other[:, worst].mean()), float(one[:, worst].mean())
    return f"element {worst} is {means[0]:.4g} on average, and in eager {means[1]:.4g}"
