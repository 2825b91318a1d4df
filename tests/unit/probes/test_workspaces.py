"""Bytes that an operator keeps for its backward may be uninitialised in part: they are not values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelscope.probes.operators import uninitialised_returns

BYTES, NUMBERS = torch.empty(7, dtype=torch.uint8), torch.empty(2, 3)


def left_unwritten(operator: Any, result: Any) -> list[str]:
    which = uninitialised_returns(operator)
    if which is None:
        return []
    launch: Any = SimpleNamespace(result=result, args=(), kwargs={})
    return [name for i in range(8) if (name := f"result{i}") in which(launch)]


@pytest.mark.parametrize(
    "operator", [torch.ops.aten._cudnn_rnn.default, torch.ops.aten.mkldnn_rnn_layer.default]
)
def test_the_workspace_of_an_rnn(operator: Any) -> None:
    assert left_unwritten(operator, (NUMBERS, NUMBERS, NUMBERS, BYTES)) == ["result3"]


def test_bytes_that_are_a_result() -> None:
    values = torch.empty(7, dtype=torch.uint8), torch.empty(7, dtype=torch.int64)
    assert left_unwritten(torch.ops.aten.sort.default, values) == []
    assert (
        left_unwritten(torch.ops.aten._cudnn_rnn.default, (NUMBERS, torch.empty(2, 2, dtype=torch.uint8)))
        == []
    )
    assert left_unwritten(torch.ops.aten.sin.default, BYTES) == []
