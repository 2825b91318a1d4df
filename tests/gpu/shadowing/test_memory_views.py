"""Memory that a wrapper reuses and reinterprets, on a GPU: no alarm, and a fault in it is named."""

from __future__ import annotations

import pytest
from tests.programs.judged_views import assert_judged_right

SEEDS, AT_A_TIME = 1000, 10


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(AT_A_TIME, SEEDS, AT_A_TIME))],
)
def test_random_programs(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        assert_judged_right(seed, "cuda")
