"""Planted faults: each kernel that computes something wrong is named, with the output that is wrong."""

from __future__ import annotations

import pytest
from tests.integration.faults.everything import FAULTS, marked
from tests.integration.faults.kinds_of_values import SIGNS_OF_ZEROS
from tests.integration.faults.planting import Fault, assert_named, look_for
from tests.integration.faults.wrong_schedules import SCHEDULES


@pytest.mark.parametrize(
    "fault", [*(marked(fault) for fault in FAULTS), *SIGNS_OF_ZEROS, *SCHEDULES], ids=str
)
def test_is_named(fault: Fault) -> None:
    result, canary = look_for(fault)
    assert_named(fault, result, canary)


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)
