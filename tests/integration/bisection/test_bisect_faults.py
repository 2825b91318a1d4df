"""Planted faults: bisect ends at its cause, and looks for what works around it.

Without that, and one of each family in `make test`: test_repro_faults.
"""

from __future__ import annotations

import pytest
from tests.integration.faults.everything import FAULTS
from tests.integration.faults.finding import Canaries, assert_found, planted
from tests.integration.faults.planting import Fault
from tests.integration.faults.wrong_schedules import BY_THE_SCHEDULER, SCHEDULES

import kernelscope


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", [pytest.param(f, id=str(f)) for f in FAULTS])
def test_each_ends_at_its_cause_with_a_workaround(fault: Fault) -> None:
    canaries = Canaries()
    result = kernelscope.bisect(planted(fault, canaries), compile=False)
    canary = canaries.first
    canary.assert_planted()
    assert_found(fault, result, canary)
    assert "not deterministic" not in str(result)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=str(f), marks=() if f is SCHEDULES[0] else pytest.mark.slow) for f in SCHEDULES],
)
def test_a_wrong_schedule_stays_named(fault: Fault) -> None:
    """No kernel and no pass is its cause; what is planted in a wrapper's text goes with another lowering."""
    canaries = Canaries()
    result = kernelscope.bisect(planted(fault, canaries), compile=False, workaround=False, runs=2)
    assert result.cause is not None, str(result)
    assert result.failure.startswith(f"{fault.verdict}: {fault.kernel}"), str(result)
    assert "kernel" not in result.causes, str(result)
    if fault in BY_THE_SCHEDULER:
        assert_found(fault, result, canaries.first)
