"""A program with its fault in it, and whether `bisect` has named that fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from queue import SimpleQueue

import torch
import torch._inductor.config

from kernelscope import BisectResult

from .planting import Canary, Fault


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
    if fault.finest:
        assert f"{cause.axis} {cause.switches[0].name}" == fault.finest, told
        return
    assert cause.axis == "kernel", told
    info = cause.switches[0].info
    if fault.kernel:
        assert re.search(fault.kernel, info["kernel"]), told
    else:
        assert info["kernel"] == canary.kernels[0], told
    if fault.phase:
        assert info["phase"] == fault.phase, told
    if not fault.node.startswith("=") and fault.family != "written in place":
        assert fault.node in info["nodes"], told
