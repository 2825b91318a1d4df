"""Whether two ways of drawing draw from the same distribution."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelscope.shadowing.draws import distributions
from kernelscope.shadowing.draws.distributions import Draw, difference, improbable

Make = Callable[[], torch.Tensor]
X = torch.linspace(0, 1, 300)
EPS = 2**-23


def seeded(make: Make) -> Draw:
    def draw(number: int) -> torch.Tensor:
        torch.manual_seed(number)
        return make()

    return draw


MASK = torch.zeros(512).masked_fill(torch.arange(512) % 3 == 0, -torch.inf)


def masked(probability: float) -> torch.Tensor:
    """Dropout of scores that are masked: -inf where they stay, NaN where they are dropped."""
    return torch.dropout(MASK + 1, probability, True)


# Of activations, few are large; each is then a number that only one element gives.
FEW_DIGITS = (torch.randn(768, generator=torch.Generator().manual_seed(2)) ** 3 * 0.003).bfloat16()


def dropped_in_two_steps() -> torch.Tensor:
    return FEW_DIGITS * (torch.rand(768) >= 0.1).bfloat16().div_(0.9)


def dropped_in_one_step() -> torch.Tensor:
    return (FEW_DIGITS.float() * (torch.rand(768) >= 0.1) * (1 / 0.9)).bfloat16()


SAME: dict[str, tuple[Make, Make, float]] = {
    "mirrored": (lambda: torch.rand(512), lambda: 1 - torch.rand(512), EPS),
    "one number": (lambda: torch.rand(1), lambda: torch.rand(2)[1:], EPS),
    "few digits": (lambda: torch.rand(512, dtype=torch.bfloat16), lambda: torch.rand(512).bfloat16(), 2**-7),
    "whole channels": (
        lambda: torch.bernoulli(torch.full((2, 1), 0.01)).expand(2, 9000),
        lambda: (torch.rand(2, 1) < 0.01).float().expand(2, 9000),
        EPS,
    ),
    "by element": (lambda: torch.bernoulli(X), lambda: (torch.rand(300) < X).float(), EPS),
    "heavy tails": (lambda: torch.empty(512).cauchy_(), lambda: torch.randn(512) / torch.randn(512), EPS),
    "no randomness": (lambda: X, lambda: X * (1 + EPS), EPS),
    "masked": (lambda: masked(0.1), lambda: masked(0.1), EPS),
    "infinite": (lambda: torch.randn(512) + MASK.abs(), lambda: MASK.abs() - torch.randn(512), EPS),
    "few digits and heavy tails": (dropped_in_two_steps, dropped_in_one_step, 2**-7),
    "without elements": (lambda: torch.rand(0), lambda: torch.rand(0), EPS),
}
OTHER: dict[str, tuple[Make, Make]] = {
    "range": (lambda: torch.rand(512), lambda: torch.rand(512) * 1.01),
    "few numbers": (lambda: torch.rand(3), lambda: torch.rand(3) * 1.2),
    "probability": (lambda: torch.rand(64) < 0.5, lambda: torch.rand(64) < 0.54),
    "scale": (lambda: torch.dropout(X, 0.3, True), lambda: torch.dropout(X, 0.3, True) * 0.7),
    "by element": (lambda: torch.bernoulli(X), lambda: torch.bernoulli(1 - X)),
    "broadcast": (lambda: torch.rand(16, 32), lambda: torch.rand(1, 32).expand(16, 32)),
    "spread": (lambda: torch.randn(100), lambda: torch.randn(100) * 1.06),
    "NaN": (lambda: torch.randn(100), lambda: torch.randn(100).sqrt()),
    "inf": (lambda: torch.rand(100), lambda: 1 / torch.randint(0, 5, (100,))),
    "share of inf": (lambda: masked(0.1), lambda: masked(0.2)),
    "range beside inf": (lambda: MASK + torch.rand(512), lambda: MASK + torch.rand(512) * 1.01),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same(name: str) -> None:
    eager, other, eps = SAME[name]
    assert difference(seeded(eager), seeded(other), eps) == ""
    assert improbable(seeded(eager), seeded(other)(12345), eps) == ""


@pytest.mark.parametrize("name", OTHER)
def test_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As many runs on a slow machine as on a fast one.
    monkeypatch.setattr(distributions, "SECONDS_OF_A_SIDE", 60)
    eager, other = OTHER[name]
    assert difference(seeded(eager), seeded(other), EPS)


def test_a_single_run_is_improbable() -> None:
    assert "eager" in improbable(seeded(lambda: torch.rand(64)), torch.rand(64) + 2, EPS)
    assert "at most" in improbable(seeded(lambda: torch.rand(500) < 0.1), torch.rand(500) < 0.6, EPS)
    assert improbable(seeded(lambda: torch.rand(4)), torch.rand(4) + 2, EPS) == ""  # too few to tell


def test_what_is_rare_is_not_improbable() -> None:
    """Half of the rows have an outcome that is drawn once in many runs: a few runs may have none of it."""
    shares = torch.zeros(4096, 2)
    shares[:2048] = torch.tensor([1 - 3.4e-6, 3.4e-6])
    shares[2048:, 1] = 1

    def eager() -> torch.Tensor:
        return torch.multinomial(shares, 1)

    usual = torch.cat([torch.zeros(2048, 1), torch.ones(2048, 1)]).long()
    for rare in (1, 2, 3):
        made = usual.clone()
        made[:rare] = 1
        assert improbable(seeded(eager), made, EPS) == ""
    made = usual.clone()
    made[:100] = 1
    assert "of its numbers are at most 0" in improbable(seeded(eager), made, EPS)


def test_what_happens_to_a_whole_run_seldom_is_not_improbable() -> None:
    def eager() -> torch.Tensor:
        return torch.rand(100).gt(0.5) & (torch.rand(()) > 0.02)

    dropped = torch.zeros(100, dtype=torch.bool)
    assert improbable(seeded(eager), dropped, EPS) == ""
