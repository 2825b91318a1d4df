"""Values with `cpp_wrapper`, where no Python runs between kernels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor
import torch._inductor.config as inductor
from tests.integration.probes.cpp_wrappers.cpp_wrapper_operators import X, pair, raise_by, twice

import kernelscope
from kernelscope.fingerprint import fingerprint
from kernelscope.values import WatchHit, observe, watch


@pytest.fixture(scope="module")
def trained() -> Iterator[Any]:
    """A small model, compiled with a C++ wrapper inside a recording, and its eager twin's gradients."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model(X).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    compiled = torch.compile(model)
    with inductor.patch(cpp_wrapper=True):
        with kernelscope.record(values="stats") as run:
            model.zero_grad()
            compiled(X).sum().backward()
        found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        yield compiled, found, gradients, run
    torch._dynamo.reset()


def test_a_training_step_with_cpp_wrapper(trained: Any) -> None:
    compiled, found, gradients, run = trained
    torch.testing.assert_close(found, gradients)
    assert {call.phase for call in run} == {"forward", "backward"}
    assert {call.kind for call in run} == {"cpp", "extern"}
    assert not run.findings
    last = [call for call in run if call.kernel_name == "aoti_torch_cpu_mm_out"][-1]
    assert last.post_stats
    with kernelscope.record() as again:  # it tells of its launches for as long as it lives
        compiled(X)
    assert [call.kernel_name for call in again] == [c.kernel_name for c in run if c.phase == "forward"]


def test_the_levels_with_cpp_wrapper(trained: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    compiled, _, _, run = trained
    stream = io.StringIO()
    with observe("2", stream=stream):
        compiled(X).sum().backward()
    text = stream.getvalue()
    for call in run:
        for arg in call.arguments:
            if arg.tensor is not None:
                assert f"inductor: after_launch - {call.kernel_name} - {arg.wrapper_name}\n" in text
    assert "aoti_model_inputs - primals_1\n" in text
    assert "aoti_model_inputs - tangents_1\n" in text
    capfd.readouterr()
    with observe("3", kernels="cpp_*"):
        compiled(X)
    told = capfd.readouterr()
    assert set(told.out.splitlines()) == {
        "[ before_launch: cpp_fused_relu_0 ]",
        "[ after_launch: cpp_fused_relu_0 ]",
    }
    assert not told.err  # no word of a filter that matched nothing
    with observe("1", folder=tmp_path / "v"):
        compiled(X)
    relu = tmp_path / "v" / "1"
    before = torch.load(relu / "before_launch_cpp_fused_relu_0_buf1_cpu.pt", weights_only=True)
    after = torch.load(relu / "after_launch_cpp_fused_relu_0_buf1_cpu.pt", weights_only=True)
    assert torch.equal(after, before.relu())


def test_the_producer_of_a_nan_with_cpp_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    w = torch.eye(4)
    with inductor.patch(cpp_wrapper=True):
        function = torch.compile(lambda x: torch.log(x.mm(w) - 3).mm(w).relu())
        with pytest.raises(WatchHit) as stopped, watch("nan"):
            function(torch.arange(16.0).view(4, 4))
        assert "log" in stopped.value.hit.kernel
        assert stopped.value.hit.is_producer
        monkeypatch.setattr("kernelscope.values.session.has_gpu", lambda: True)  # and so no statistics
        with pytest.raises(WatchHit) as stopped, watch("nan"):
            function(torch.arange(16.0).view(4, 4))
    assert "log" in stopped.value.hit.kernel


def test_odd_arguments_with_cpp_wrapper() -> None:
    """Expanded ones, very many of them, with very many dimensions, and an operator that writes."""
    torch._dynamo.reset()
    x, many = torch.randn(1, 3).expand(4, 3), [torch.full((3,), float(i)) for i in range(70)]
    nine, deep, target = torch.randn(*[2] * 9), torch.randn(*[1] * 17), torch.ones(3)

    def function(x: Any, many: Any, nine: Any, deep: Any, target: Any) -> Any:
        raise_by(target, 2.0)
        return x * 2, torch._foreach_add(many, 1.0), torch.sort(nine)[0], torch.sort(deep)[0], x.t()

    with inductor.patch(cpp_wrapper=True):
        compiled = torch.compile(function)
        with kernelscope.record(values="stats") as run:
            doubled, raised, ordered, *_ = compiled(x, many, nine, deep, target)
    assert torch.equal(target, torch.full((3,), 3.0))
    assert torch.equal(doubled, 2 * x)
    assert torch.equal(raised[69], torch.full((3,), 70.0))
    stats = [stats for call in run for stats in call.post_stats.values()]
    assert {float(i + 1) for i in range(70)} <= {each.max for each in stats if each.numel == 3}
    assert any(each.numel == 12 and each.max == doubled.max().item() for each in stats)
    assert any(each.numel == 512 and each.min == ordered.min().item() for each in stats)
    [writes] = [call for call in run if "raise_by" in call.kernel_name]
    assert dict(zip(writes.arg_names, writes.roles, strict=True)) == {"x": "inout"}
    assert (writes.pre_stats[0].max, writes.post_stats[0].max) == (1.0, 3.0)
    assert {finding.kind for finding in run.findings} == {"values-not-copied"}
    assert all("it has 17 dimensions" in finding.message for finding in run.findings)


def test_a_wrapper_that_launches_nothing() -> None:
    torch._dynamo.reset()
    with inductor.patch(cpp_wrapper=True), kernelscope.record() as run:
        torch.compile(lambda x: x.t())(X)
    assert not run.calls
    (finding,) = run.findings  # why the run is empty, and no graph that was not seen
    assert "1 compiled graph ran, with nothing to launch" in finding.message


def test_what_we_add_keeps_nothing_from_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may be with a torch that is newer than we are."""
    from kernelscope.probes.cpp_wrappers import instrumented_code as cpp_code

    torch._dynamo.reset()
    monkeypatch.setattr(cpp_code, "header", lambda: "int broken = ;")
    with inductor.patch(cpp_wrapper=True), kernelscope.record() as run:
        assert torch.equal(torch.compile(lambda x: x * 17)(X), X * 17)
    assert not run.calls
    assert [f.kind for f in run.findings] == ["unseen-graph"] * 2  # why, and that it ran
    assert "could not be compiled with the code that reports its launches" in run.findings[0].message


@pytest.mark.slow
def test_a_graph_compiled_before_the_recording_is_said() -> None:
    torch._dynamo.reset()
    with inductor.patch(cpp_wrapper=True, fx_graph_cache=False):
        function = torch.compile(lambda x: x.sin() + 17)
        function(X)
        with kernelscope.record() as run:
            function(X)
    assert [finding.kind for finding in run.findings] == ["unseen-graph"]
    assert "compile it inside the recording" in run.findings[0].message


@pytest.mark.slow
def test_operators_looked_up_at_run_time() -> None:
    torch._dynamo.reset()
    with inductor.patch(cpp_wrapper=True):
        function = torch.compile(
            lambda x: (twice(x) + 1, torch.linalg.inv(x @ x.t() + 9 * torch.eye(5)), *pair([x[1:], x[:4]]))
        )
        with kernelscope.record(values="hash") as run:
            doubled, *_ = function(X)
    assert torch.equal(doubled, 2 * X + 1)
    names = [call.kernel_name for call in run]
    assert "kernelscope_tests.twice.default" in names
    assert "aten.linalg_inv_ex.default" in names
    assert all(call.post_hashes for call in run)
    [pairs] = [call for call in run if "pair" in call.kernel_name]
    assert list(pairs.arg_names) == ["xs[0]", "xs[1]", "result0", "result1"]
    assert pairs.pre_hashes[0] == pairs.pre_hashes[1] == fingerprint(X[1:]).bits
    with kernelscope.record() as named:
        function(X)
    assert [call.roles for call in named] == [call.roles for call in run]
