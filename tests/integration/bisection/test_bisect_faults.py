"""Planted faults: bisect ends at its cause, and looks for what works around it.

Without that, and one of each family in `make test`: test_repro_faults.
"""

from __future__ import annotations

import pytest
from tests.integration.faults.everything import FAULTS
from tests.integration.faults.finding import Canaries, assert_found, planted
from tests.integration.faults.planting import Fault

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
