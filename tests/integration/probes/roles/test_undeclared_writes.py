"""Batch norm writes to its running statistics, which its schemas do not say: a recording knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.model.call import KernelCall

aten = torch.ops.aten
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "native_batch_norm": lambda x, m, v: aten.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5),
    "batch_norm_update_stats": lambda x, m, v: aten.batch_norm_update_stats(x, m, v, 0.1),
}


def statistics(call: KernelCall) -> dict[str, tuple[str, bool]]:
    """By name: the role, and whether the recorded values changed."""
    return {
        arg.name: (arg.role, call.pre_hashes[i] != call.post_hashes[i])
        for i, arg in enumerate(call.arguments)
        if arg.name.startswith("running_")
    }


@pytest.mark.parametrize("name", CALLS)
def test_running_statistics_are_written(name: str) -> None:
    with kernelscope.record(values="hash", ops="all") as run:
        CALLS[name](torch.randn(4, 3), torch.zeros(3), torch.ones(3))
    [call] = [call for call in run.calls if name in call.kernel_name]
    assert statistics(call) == {"running_mean": ("inout", True), "running_var": ("inout", True)}


def test_one_line_that_trains_and_then_evaluates() -> None:
    norm, x = torch.nn.BatchNorm1d(3), torch.randn(4, 3)
    with kernelscope.record(values="hash", ops="all") as run:
        for is_training in (True, False, True):
            norm.train(is_training)(x)
    calls = [call for call in run.calls if "batch_norm" in call.kernel_name]
    written, read = ("inout", True), ("in", False)
    assert [statistics(call)["running_mean"] for call in calls] == [written, read, written]
    left, found = calls[0].post_hashes, calls[1].pre_hashes
    at = next(i for i, arg in enumerate(calls[0].arguments) if arg.name == "running_mean")
    assert left[at] == found[at]
