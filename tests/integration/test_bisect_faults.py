"""Planted faults: bisect ends at the kernel or the pass that the fault was put into."""

from __future__ import annotations

import re
from collections.abc import Callable
from queue import SimpleQueue

import pytest
import torch
import torch._inductor.config
from tests.integration.faults.corpus import FAULTS
from tests.integration.faults.planting import Canary, Fault

import kernelscope
from kernelscope import BisectResult

FIRST = {fault.family: fault.name for fault in reversed(FAULTS)}


class Canaries:
    """Outside of what is put back before each trial, as all that the program could have changed is."""

    def __init__(self) -> None:
        self._kept: SimpleQueue[Canary] = SimpleQueue()

    def add(self, canary: Canary) -> None:
        self._kept.put(canary)

    @property
    def first(self) -> Canary:
        return self._kept.get_nowait()


def planted(fault: Fault, canaries: Canaries) -> Callable[[], None]:
    """The program with the fault in all that it compiles; each trial may compile again."""

    def program() -> None:
        torch.manual_seed(0)
        with torch._inductor.config.patch({"cpp.simdlen": 1} | fault.config), fault.plant() as canary:
            fault.program()
        if canary.hits:
            canaries.add(canary)

    return program


def assert_found(fault: Fault, result: BisectResult, canary: Canary) -> None:
    told = f"{fault}\n{result}"
    cause = result.cause
    assert cause is not None, told
    assert len(cause.switches) == 1, told
    if fault.verdict == "wrong-stage":
        assert cause.axis == "pass", told
        assert cause.switches[0].name.endswith(f"/{fault.kernel}"), told
        return
    assert cause.axis == "kernel", told
    info = cause.switches[0].info
    if fault.kernel:
        assert re.search(fault.kernel, info["kernel"]), told
    else:
        assert info["kernel"] == canary.kernels[0], told
    assert info["phase"] == fault.phase, told
    if not fault.node.startswith("=") and fault.family != "written in place":
        assert fault.node in info["nodes"], told


@pytest.mark.parametrize("fault", [pytest.param(f, id=str(f)) for f in FAULTS if FIRST[f.family] == f.name])
def test_one_of_each_family(fault: Fault) -> None:
    """On the two axes that can express them; the others are below."""
    canaries = Canaries()
    result = kernelscope.bisect(planted(fault, canaries), compile=False, axes=("kernel", "pass"), runs=2)
    canary = canaries.first
    canary.assert_planted()
    assert_found(fault, result, canary)


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
