"""Inductor's random numbers, made again."""

from __future__ import annotations

import pytest

from kernelscope.shadowing.reference.random_numbers import inductor_randint, inductor_random, philox


def test_philox_known_answers() -> None:
    """From the paper's own test vectors: key 0, counter 0, and all ones in the counter's first word."""
    words = philox(0, 1, 0)
    assert [hex(int(w[0])) for w in words] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_uniform_numbers_are_spread() -> None:
    for triton in (False, True):
        values = inductor_random((100, 100), 12345, "rand", 0, triton=triton)
        assert 0 <= float(values.min()) < 0.01
        assert 0.99 < float(values.max()) < 1
        assert abs(float(values.mean()) - 0.5) < 0.02


def test_normal_numbers_are_spread() -> None:
    for triton in (False, True):
        values = inductor_random((100, 100), -7, "randn", 0, triton=triton)
        assert abs(float(values.mean())) < 0.05
        assert abs(float(values.std()) - 1) < 0.05


def test_an_offset_moves_along() -> None:
    assert (
        inductor_random((10,), 5, "rand", 3, triton=False)[0]
        == inductor_random((10,), 5, "rand", 0, triton=False)[3]
    )


def test_integers_are_in_range() -> None:
    values = inductor_randint(-3, 4, (1000,), 99, 0, triton=False)
    assert set(values.tolist()) == {-3, -2, -1, 0, 1, 2, 3}


@pytest.mark.parametrize(
    ("low", "high"), [(0, 10), (-5, 1 << 62), (0, (1 << 63) - 1), (-(1 << 63), (1 << 63) - 1)]
)
def test_integers_of_any_range_are_exact(low: int, high: int) -> None:
    """The word has 64 bits and no sign; so may the range."""
    first, second, *_ = philox(99, 64, 0)
    words = [int(a) | int(b) << 32 for a, b in zip(first, second, strict=True)]
    expected = [word % (high - low) + low for word in words]
    assert inductor_randint(low, high, (8, 8), 99, 0, triton=False).flatten().tolist() == expected
