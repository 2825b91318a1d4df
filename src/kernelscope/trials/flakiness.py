"""How often a trial must pass before it is believed."""

from __future__ import annotations

import math

MOST = 200  # repeats of one trial


def repeats_needed(failed: int, runs: int, confidence: float) -> int:
    """How many passes in a row tell, with this confidence, that the failure is gone.

    `failed` of `runs` runs of the unchanged program failed. One that always failed need not be repeated. The
    rate is estimated low, so that a failure is not taken for gone too early.
    """
    if not 0 < failed <= runs:
        raise ValueError(f"{failed} failures in {runs} runs: at least one run has to fail")
    if failed == runs:
        return 1
    rate = failed / (runs + 1)
    return min(MOST, math.ceil(math.log(1 - confidence) / math.log(1 - rate)))


def confidence_of(passes: int, failed: int, runs: int) -> float:
    """That the failure is gone, after so many passes in a row."""
    if failed == runs:
        return 1.0
    return 1 - (1 - failed / (runs + 1)) ** passes
