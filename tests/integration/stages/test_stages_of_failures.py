"""Stages of graph breaks, of graphs that do not compile, and where a hook does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from tests.integration.stages.staged_programs import SCHEMA, line_of

import kernelscope
from kernelscope.stages.document import document


def test_two_graph_breaks_and_a_recompilation(cache: Path, tmp_path: Path) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print("the first break")
        z = y.cos()
        torch._dynamo.graph_break()
        return z + 1

    compiled = torch.compile(broken, dynamic=False)
    with kernelscope.record(stages=True, path=tmp_path / "x") as run:
        compiled(torch.ones(4))
        assert not run.stages.recompiles
        compiled(torch.ones(5))
    first, second = run.stages.graph_breaks[:2]
    assert (first.origin[0].file, first.origin[0].line) == (__file__, line_of('print("the first break")'))
    assert "print" in first.reason
    assert (second.origin[0].file, second.origin[0].line) == (
        __file__,
        line_of("torch._dynamo.graph_break()"),
    )
    assert "graph_break" in second.reason
    again = run.stages.recompiles[0]
    assert "expected 4, actual 5" in again.reason
    assert (again.origin[0].file, again.origin[0].function) == (__file__, "broken")
    assert again.origin[0].line == line_of("def broken(x: torch.Tensor) -> torch.Tensor:")
    assert again.origin[1].line == line_of("compiled(torch.ones(5))")


def test_a_lowering_that_raises(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import lowering

    def raises(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("this lowering is broken")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.erfc(y)

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.erfc.default, raises)
    said = the_exception(program)
    with kernelscope.record(stages=True, fresh=True) as run:
        assert the_exception(program) == said
    [failure] = run.stages.failures
    assert failure.stage == "lowering"
    assert "this lowering is broken" in failure.reason
    assert "aten.erfc" in failure.reason
    assert failure.origin[0].line == line_of("return torch.erfc(y)")
    [graph] = run.stages
    assert graph.made == "failed"
    assert {"dynamo", "pre_grad", "aot", "post_grad", "runnable"} <= set(graph.stages)
    made = document(graph, run.info.versions)
    jsonschema.validate(made, SCHEMA)
    assert made["error"]["stage"] == "lowering"
    assert made["code"] is None


def test_a_kernel_that_does_not_compile(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.tanh(y) * 3

    for overrides in (CppOverrides, CppVecOverrides):
        monkeypatch.setattr(overrides, "tanh", staticmethod(lambda x: f"no_such_function({x})"))
    with kernelscope.record(stages=True, fresh=True, path=tmp_path / "x") as run:
        kind, text = the_exception(program)
    assert kind == "InductorError"
    assert "CppCompileError" in text
    [failure] = run.stages.failures
    assert failure.stage == "kernel"
    assert failure.reason.startswith("cpp_fused_add_mul_tanh_0, line ")
    assert "no_such_function" in failure.reason
    [marked] = [line for line in failure.source.splitlines() if line.startswith(">")]
    assert "no_such_function(" in marked
    assert line_of("return torch.tanh(y) * 3") in {f.line for f in failure.origin}
    [graph] = run.stages
    assert graph.made == "failed"
    assert "no_such_function" in graph.stage("output_code").text
    assert {"schedule_before", "schedule", "dag"} <= set(graph.stages)


def the_exception(program: Callable[[torch.Tensor], torch.Tensor]) -> tuple[str, str]:
    torch._dynamo.reset()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is torch's business
        torch.compile(program)(torch.ones(64))
    return type(caught.value).__name__, str(caught.value)


def test_a_hook_that_does_not_fit_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import scheduler

    monkeypatch.delattr(scheduler.WhyNoFuse, "__call__")
    monkeypatch.setattr(scheduler.WhyNoFuse, "say", lambda *args: None, raising=False)
    with kernelscope.record(stages=True) as run:
        torch.compile(lambda x: x.sinh())(torch.ones(16))
    [finding] = run.findings
    assert finding.kind == "stage-hook-missing"
    assert "WhyNoFuse.__call__" in finding.message
    assert "KERNELSCOPE_STRICT" not in finding.message  # it records without the hook already
    [graph] = run.stages
    assert graph.provenance
