"""Planted faults: each kernel that computes something wrong is named, with the output that is wrong."""

from __future__ import annotations

import pytest
from tests.integration.faults.corpus import FAULTS as COMMON
from tests.integration.faults.other_kinds import OTHERS
from tests.integration.faults.planting import Fault, assert_named, look_for

FAULTS = [*COMMON, *OTHERS]
FIRST = {fault.family: fault.name for fault in reversed(FAULTS)}


def marked(fault: Fault) -> object:
    is_first = FIRST[fault.family] == fault.name
    return pytest.param(fault, id=str(fault), marks=() if is_first else pytest.mark.slow)


@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_is_named(fault: Fault) -> None:
    result, canary = look_for(fault)
    assert_named(fault, result, canary)


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)
