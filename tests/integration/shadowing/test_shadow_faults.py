"""Planted faults: each kernel that computes something wrong is named, with the output that is wrong."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.integration.faults.everything import FAULTS, marked
from tests.integration.faults.kinds_of_values import SIGNS_OF_ZEROS
from tests.integration.faults.planting import Fault, assert_named, look_for, replacing
from tests.integration.faults.wrong_schedules import SCHEDULES, scaled_after_a_sum, writing_first
from torch._inductor.scheduler import Scheduler
from torch._inductor.utils import fresh_cache

import kernelscope


@pytest.mark.parametrize(
    "fault", [*(marked(fault) for fault in FAULTS), *SIGNS_OF_ZEROS, *SCHEDULES], ids=str
)
def test_is_named(fault: Fault) -> None:
    result, canary = look_for(fault)
    assert_named(fault, result, canary)


def test_an_early_write_is_one_culprit_in_all_executions() -> None:
    """Also in those whose function is not compared as a whole for the first time."""
    torch._dynamo.reset()
    plant = replacing(Scheduler, "_codegen", writing_first)
    with fresh_cache(), plant(), kernelscope.shadow(every=True) as result:
        compiled = torch.compile(scaled_after_a_sum)
        for _ in range(3):
            compiled(torch.randn(6, 10))
    torch._dynamo.reset()
    assert [(each.verdict, each.times) for each in result] == [("early-write", 3)], str(result)


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert min(Counter(fault.family for fault in FAULTS).values()) >= 3
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)
