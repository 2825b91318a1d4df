"""A run without calls says why, in all the ways in which nothing compiled comes to run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kernelscope

X = torch.ones(4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of other tests
    yield
    torch._dynamo.reset()


def told(do: Callable[[], Any], **options: Any) -> str:
    with kernelscope.record(**options) as run:
        do()
    assert not len(run.calls)
    (finding,) = run.findings
    assert finding.kind == "nothing-compiled"
    assert finding.message.startswith(("no compiled code ran: ", "no kernel ran: "))
    return finding.message


@torch.compiler.disable
def disabled(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def calls_disabled(x: torch.Tensor) -> torch.Tensor:
    return disabled(x)


def without_operators(x: torch.Tensor) -> int:
    return 3


def refuses(gm: Any, inputs: Any) -> Any:
    raise ValueError("no such instruction")


def runs_the_graph(gm: Any, inputs: Any) -> Any:
    return gm.forward


def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_nothing_was_compiled() -> None:
    said = told(lambda: plus(X))
    assert "nothing that torch.compile returned was called in this process" in said
    assert 'ops="all"' in said


def test_graph_breaks_left_nothing() -> None:
    said = told(lambda: torch.compile(calls_disabled)(X))
    assert f"graph breaks left nothing to compile in calls_disabled ({__file__}:" in said
    assert "disable" in said


def test_dynamo_skipped_it() -> None:
    assert f"without_operators ({__file__}:" in told(lambda: torch.compile(without_operators)(X))


def test_the_backend_makes_no_kernels() -> None:
    said = told(lambda: torch.compile(plus, backend="eager")(X))
    assert "1 graph went to the backend eager, which makes no kernels" in said
    said = told(lambda: torch.compile(lambda x: x * 2, backend=runs_the_graph)(X))
    assert "went to the backend runs_the_graph, and none of its kernels was seen" in said


def test_compiling_failed() -> None:
    def fails() -> None:
        with pytest.raises(Exception, match="no such instruction"):
            torch.compile(plus, backend=refuses)(X)

    said = told(fails)
    assert f"compiling plus ({__file__}:" in said
    assert "ValueError: no such instruction" in said


def test_it_is_turned_off() -> None:
    with torch.compiler.set_stance("force_eager"):
        assert 'torch.compiler.set_stance("force_eager") was in force' in told(lambda: torch.compile(plus)(X))
    with torch._dynamo.config.patch(disable=True):
        assert "torch.compile is turned off" in told(lambda: torch.compile(plus)(X))


def test_torch_compile_returns_a_function_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"plus ({__file__}:{plus.__code__.co_firstlineno})"
    said = told(lambda: torch.compile(plus, disable=True)(X))
    assert f"torch.compile returned {place} as it was" in said
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    said = told(lambda: (torch.compile(plus)(X), torch.compile(torch.nn.Linear(4, 4))(X)))
    assert f"torch.compile returned {place} and 1 other function as it was" in said
    assert "TORCHDYNAMO_DISABLE=1" in said


def test_a_stance_that_raises() -> None:
    def calls() -> None:
        with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError):
            compiled(X)

    compiled = torch.compile(plus, dynamic=False)
    assert "a call that had to compile raised" in told(calls)
    compiled(torch.ones(5))
    with kernelscope.record() as run:
        compiled(torch.ones(5))
        calls()
    assert len(run) == 1
    assert not run.findings  # nothing of it ran in eager


def test_where_torch_compiles_nothing() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def traces() -> None:
        with pytest.raises(RuntimeError, match="FX to symbolically trace"):
            make_fx(torch.compile(plus))(X)

    assert "or only where torch compiles nothing (in make_fx" in told(traces)


def test_dynamos_reasons_are_whole() -> None:
    said = told(lambda: torch.func.grad(torch.compile(lambda x: plus(x).sum()))(X))
    assert "from eager mode is not supported" in said

    def fails() -> None:
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(calls_disabled, fullgraph=True)(X)

    assert "  " not in told(fails)


def test_it_is_turned_off_for_a_part() -> None:
    compiled = torch.compile(plus)

    def calls() -> None:
        with torch.compiler.set_stance("force_eager"):
            compiled(X)

    assert 'torch.compiler.set_stance("force_eager") was in force' in told(calls)
    with kernelscope.record() as run:
        compiled(X)
        with torch.compiler.set_stance("eager_on_recompile"):
            compiled(torch.ones(5))
    (finding,) = run.findings
    assert finding.kind == "ran-in-eager"
    assert 'set_stance("eager_on_recompile")' in finding.message
    with kernelscope.record() as run:
        compiled(X)
    assert not run.findings


_SCRIPTS_OF_TORCH = """
import torch, kernelscope
torch.compile(lambda x: torch.func.jvp(torch.sin, (x,), (x,)))(torch.ones(4))
with kernelscope.record() as run:
    torch.ones(4) + 1
(finding,) = run.findings
print(finding.message)
"""


def test_torchs_own_scripts_are_not_the_programs() -> None:
    """Torch scripts functions for jvp. In a process of its own: torch keeps what a test has scripted."""
    command = [sys.executable, "-c", _SCRIPTS_OF_TORCH]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "compiled before" in said
    assert "TorchScript" not in said


_SCRIPT_AFTER_COMPILED = """
import torch, kernelscope
def plus(x): return x + 1
torch.compile(plus)(torch.ones(4))
scripted = torch.jit.trace(plus, (torch.ones(4),))
with kernelscope.record() as run:
    scripted(torch.ones(4))
(finding,) = run.findings
print(finding.message)
"""


def test_a_script_beside_functions_that_were_compiled_before() -> None:
    """In a process of its own: torch keeps what was scripted."""
    command = [sys.executable, "-c", _SCRIPT_AFTER_COMPILED]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "1 function compiled before" in said
    assert "TorchScript" in said


def test_dynamo_gave_up() -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        said = told(lambda: torch.compile(plus, backend=refuses)(X))
    assert f"Dynamo left plus ({__file__}:" in said
    assert "no such instruction" in said
    said = told(lambda: torch.func.grad(torch.compile(lambda x: plus(x).sum()))(X))
    assert "suppressed" not in said


def test_what_was_left_to_python_beside_compiled_code() -> None:
    def calls() -> None:
        compiled = torch.compile(plus, dynamic=False)
        for n in range(2, 6):
            compiled(torch.ones(n))

    with kernelscope.record() as run, torch._dynamo.config.patch(recompile_limit=2):
        calls()
    assert len(run) == 2
    (finding,) = run.findings
    assert finding.kind == "ran-in-eager"
    assert f"plus ({__file__}:" in finding.message
    assert "recompile limit" in finding.message
    torch._dynamo.reset()
    with kernelscope.record(ops="all") as run, torch._dynamo.config.patch(recompile_limit=2):
        calls()
    assert len(run.select(kernel="aten.add.Tensor")) == 2
    assert not run.findings


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("eager", "ran-in-eager"), ("aot_eager", "ran-in-eager"), (runs_the_graph, "unseen-graph")],
)
def test_graphs_of_other_backends_beside_compiled_code(backend: Any, kind: str) -> None:
    """Also where others in the same run are recorded, nothing of them runs without a word."""

    def call() -> None:
        torch.compile(lambda x: x * 2)(X)
        torch.compile(plus, backend=backend)(X)

    with kernelscope.record() as run:
        call()
    assert len(run) == 1
    (finding,) = run.findings
    assert finding.kind == kind
    assert getattr(backend, "__name__", backend) in finding.message
    torch._dynamo.reset()
    with kernelscope.record(ops="all") as run:
        call()
    assert run.select(kernel="aten.add.Tensor")
    assert not run.findings


def test_a_backend_that_hands_its_graphs_to_inductor_is_no_finding() -> None:
    from torch._inductor.compile_fx import compile_fx

    with kernelscope.record() as run:
        torch.compile(plus, backend=lambda graph, inputs: compile_fx(graph, inputs))(X)
    assert len(run) == 1
    assert not run.findings


def test_graphs_that_launch_nothing() -> None:
    said = told(lambda: torch.compile(lambda x: x.view(2, 2))(X))
    assert "nothing to launch (results are inputs, views, empty or on the meta device)" in said
    assert "1 compiled graph ran, with nothing to launch" in told(lambda: torch.compile(plus)(torch.empty(0)))


def test_not_even_an_operator_ran() -> None:
    with kernelscope.record(ops="all") as run:
        np.add(X.numpy(), 1)
    (finding,) = run.findings
    assert finding.kind == "nothing-compiled"
    assert "nor an operator of torch computed anything in this process" in finding.message


def test_it_was_compiled_before() -> None:
    compiled = torch.compile(plus, backend="eager")
    compiled(X)
    assert "1 function compiled before the recording opened" in told(lambda: compiled(X))


def test_it_was_left_to_python_before() -> None:
    compiled = torch.compile(plus, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled(X)
        compiled(torch.ones(5))
        said = told(lambda: compiled(torch.ones(6)))
    assert "or Dynamo had left them to Python (Dynamo recompile limit exceeded)" in said
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(suppress_errors=True):
        left = torch.compile(plus, backend=refuses)
        left(X)
        assert "Dynamo looked at 1 function before the recording opened, and compiled none" in told(
            lambda: left(X)
        )


def test_nothing_ran_in_the_steps_that_were_wanted() -> None:
    compiled = torch.compile(plus)

    def two_steps() -> None:
        compiled(X)
        kernelscope.step()

    for steps, said in (
        ((5, 7), "steps 5:7 were to be recorded, and the program ended in step 1"),
        ((1, 2), "no compiled code ran in steps 1:2; it ran in other steps"),
    ):
        with kernelscope.record(steps=steps) as run:
            two_steps()
        (finding,) = run.findings
        assert finding.kind == "nothing-matched"
        assert finding.message.startswith(said)


def test_a_recording_tells_of_its_own_time_only() -> None:
    with kernelscope.record() as outer:
        torch.compile(plus, backend="eager")(X)
        inner = told(lambda: plus(X))
    assert "backend eager" in outer.findings[0].message
    assert "compiled before the recording opened" in inner


def test_one_that_ran_has_no_such_finding(tmp_path: Path) -> None:
    with kernelscope.record(path=tmp_path / "run") as run:
        torch.compile(plus)(X)
    assert len(run.calls) == 1
    assert not run.findings


def test_stacks_that_dynamo_shows_leave_us_out() -> None:
    with kernelscope.record(), pytest.raises(torch._dynamo.exc.Unsupported) as raised:
        torch.compile(calls_disabled, fullgraph=True)(X)
    assert "eval_frames.py" not in str(raised.value)
