"""DebugMode opened, reset and closed; hooks and exceptions that pass through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelscope.debug_mode import DebugMode


def test_failing_hooks_do_not_stop_the_program() -> None:
    def raising(*args: Any) -> None:
        raise KeyError("oh")

    hooks = DebugMode.dispatch_hooks(record_hook=raising, log_hook=lambda *a: 3, pre_log_hook=raising)
    with DebugMode() as mode, hooks:
        torch.ones(2).neg()
    assert [c.record for c in mode.run.calls] == [{}, {}]
    assert [f.message for f in mode.run.findings] == [
        "the hook raising raised KeyError: 'oh'",
        "the hook <lambda> must return a dict or None, not 3",
    ]


def test_hook_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="log_hook"):
        DebugMode.dispatch_hooks(log_hook={})  # type: ignore[arg-type]


def test_reset_and_second_block() -> None:
    x = torch.ones(2)
    mode = DebugMode()
    with mode:
        x.neg()
        mode.reset()
        x.exp()
    with mode:
        x.sin()
    assert [c.kernel_name for c in mode.run.calls] == ["aten.exp.default", "aten.sin.default"]
    mode.reset()
    assert mode.operators == []
    assert mode.debug_string() == ""


def test_reset_inside_keeps_hashing_and_views() -> None:
    with DebugMode() as mode, DebugMode.log_tensor_hashes():
        mode.reset()
        torch.ones(2, 2).t()
    assert mode.run.calls[0].log["hash"] == 4.0
    assert str(mode.operators[1]).startswith("aten::t(")


def test_open_twice_is_refused() -> None:
    mode = DebugMode()
    with mode, pytest.raises(RuntimeError, match="already open"), mode:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        mode.__exit__(None, None, None)


def test_exceptions_pass_through(leftovers: Callable[[], list[str]]) -> None:
    class Failing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("mine")

    flags = {"record_nn_module": True, "record_torchfunction": True, "record_stack_trace": True}
    with (
        pytest.raises(ZeroDivisionError, match="mine"),
        DebugMode(**flags) as mode,
        torch.profiler.record_function("range"),
        DebugMode.log_tensor_hashes(),
        DebugMode.record_outputs(),
    ):
        Failing()(torch.ones(2))
    assert leftovers() == []
    assert not torch.is_anomaly_enabled()
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    with mode:
        torch.ones(2).neg()
    function, operator = mode.operators[-2:]
    assert (function.call_depth, operator.call_depth) == (0, 2)
    assert operator.log == {}


def test_modes_close_in_any_order() -> None:
    first, second = DebugMode(), DebugMode()
    first.__enter__()
    second.__enter__()
    torch.ones(1)
    first.__exit__(None, None, None)
    torch.ones(1).neg()
    second.__exit__(None, None, None)
    assert [len(m.run.calls) for m in (first, second)] == [1, 3]


def test_wrong_attributes_are_refused() -> None:
    with pytest.raises(TypeError, match="list of attribute names"):
        DebugMode(record_tensor_attributes="requires_grad")
