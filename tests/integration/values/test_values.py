"""Values inside compiled programs: every tensor argument of every kernel, forward and backward."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy
import pytest
import torch
from tests.support.warm_python import WarmPython

from kernelscope import record, replace
from kernelscope.config import FILTERED, PRINTER
from kernelscope.fingerprint import fingerprint
from kernelscope.store.stored_run import load
from kernelscope.values import observe

SRC = Path(__file__).parents[3] / "src"
SCRIPT = Path(__file__).parents[2] / "programs" / "values.py"


def step(function: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    function.zero_grad()
    function(x).sum().backward()
    return [p.grad.clone() for p in function.parameters() if p.grad is not None]


@pytest.fixture(scope="module")
def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return torch.compile(model)  # type: ignore[return-value]


def test_a_training_step_prints_every_tensor_of_every_kernel(mlp: torch.nn.Module) -> None:
    x, stream = torch.randn(3, 4), io.StringIO()
    bare = step(mlp, x)
    with record() as before:
        step(mlp, x)
    with observe("2", stream=stream) as run:
        observed = step(mlp, x)
    assert all(map(torch.equal, bare, observed))
    assert [call.source for call in run] == [call.source for call in before]  # same kernels, same fusion
    expected: Counter[str] = Counter()
    for call in run:
        for arg in call.arguments:
            if arg.tensor is not None:
                for moment in ("before_launch", "after_launch"):
                    expected[f"inductor: {moment} - {call.kernel_name} - {arg.wrapper_name}"] += 1
    lines = stream.getvalue().splitlines()
    printed = Counter(line for line in lines if line.startswith("inductor: "))
    assert expected - printed == Counter()
    assert {call.kind for call in run} == {"cpp", "extern"}
    assert {call.phase for call in run} == {"forward", "backward"}
    inputs = [line for line in lines if line.startswith("aoti_model_inputs - ")]
    assert {"aoti_model_inputs - primals_1", "aoti_model_inputs - tangents_1"} <= set(inputs)
    assert not run.findings
    # Each output of a generated kernel was uninitialised before, and holds numbers afterwards.
    assert lines.count("Values:  uninitialised memory") == sum(
        len(call.recorded.uninitialised) for call in run
    )


def test_saved_files_are_what_the_kernels_had(mlp: torch.nn.Module, tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    with observe("1", folder=tmp_path / "v"):
        step(mlp, x)
        grads = step(mlp, x)
    saved = sorted((tmp_path / "v").rglob("*.pt"))
    assert {path.parent.name for path in saved if path.parent.name.isdigit()} == set(map(str, range(16)))
    relu = tmp_path / "v" / "1"
    before = torch.load(relu / "before_launch_cpp_fused_relu_0_buf1_cpu.pt", weights_only=True)
    after = torch.load(relu / "after_launch_cpp_fused_relu_0_buf1_cpu.pt", weights_only=True)
    assert torch.equal(after, before.relu())
    last = torch.load(next((tmp_path / "v" / "15").glob("after_launch_*_buf*")), weights_only=True)
    assert any(last.shape == grad.shape and torch.equal(last, grad) for grad in grads)
    assert list((tmp_path / "v").glob("graph_*/aoti_model_inputs_primals_*_cpu.pt"))


def test_replacing_what_a_kernel_wrote(mlp: torch.nn.Module) -> None:
    x = torch.randn(3, 4)
    with torch.no_grad():
        bare = mlp(x)
        first, _, last = mlp._orig_mod.children()  # type: ignore[union-attr, operator]
        with record(values="hash") as run, replace("cpp_fused_relu*", lambda args: args["in_out_ptr0"].neg()):
            replaced = mlp(x)
        expected = last(first(x).neg())
        again = mlp(x)
    assert torch.equal(replaced, expected)
    assert not torch.equal(replaced, bare)
    assert torch.equal(again, bare)
    assert run.calls[2].pre_hashes[1] == fingerprint(first(x).neg()).bits  # what the next kernel found


def test_dynamic_shapes_dtypes_and_empty_tensors() -> None:
    torch._dynamo.reset()

    @torch.compile(dynamic=True)
    def function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.bfloat16() + 1, i * 2, i > 3, x.sum()

    for size in (5, 0):
        stream = io.StringIO()
        x, i = torch.ones(size, 3), torch.full((size, 3), 2**60)
        with observe("2", stream=stream) as run:
            function(x, i)
        text = stream.getvalue()
        assert not [f for f in run.findings if f.kind == "recorder-error"]
        assert "Dtype:  torch.int64" in text
    assert "Values:  none, it is empty" in text


def child(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELSCOPE")}
    environment |= {"PYTHONPATH": str(SRC), **variables}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=250
    )


def test_variables_under_kernelscope_run(tmp_path: Path) -> None:
    """Ours prints; torch's own printer, which would print the same titles, does not."""
    done = child(
        *("-m", "kernelscope", "run", "-o", "r", str(SCRIPT)),
        cwd=tmp_path,
        **{PRINTER: "2", FILTERED: "AOTI_torch_cpu_addmm_out"},
    )
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("inductor: ")]
    assert {title.split(" - ")[1] for title in titles} == {"extern_kernels.addmm"}
    assert titles.count("inductor: before_launch - extern_kernels.addmm - buf0") == 1
    assert "stock's level: 0" in done.stdout
    run = load(tmp_path / "r.kscope")
    assert "_print_debugging_tensor_value_info(" not in run.graphs[0].source.split("def call")[1]


@pytest.mark.slow
def test_variables_under_plain_python(tmp_path: Path) -> None:
    done = child(str(SCRIPT), "import", cwd=tmp_path, **{PRINTER: "1"})
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "kscope-values" / "1").rglob("after_launch_cpp_fused_relu_0_buf1_cpu.pt")
    assert torch.load(file, weights_only=True).shape == (3, 8)


def test_the_name_of_a_kernel_that_kills_the_process(tmp_path: Path, warm_python: WarmPython) -> None:
    """Standard output is not a terminal here, and what is not flushed is lost."""
    program = """
import os, torch, kernelscope
@torch.library.custom_op("kernelscope_tests::die", mutates_args=())
def die(x: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), 9)
with kernelscope.values.observe("3", ops="all"):
    die(torch.ones(3))
"""
    done = warm_python.run("-c", program, cwd=tmp_path)
    assert done.returncode == -9
    assert done.stdout.splitlines()[-1] == "[ before_launch: kernelscope_tests.die.default ]"


@pytest.mark.slow
def test_levels_set_in_code(tmp_path: Path) -> None:
    done = child("-m", "kernelscope", "run", str(SCRIPT), "code", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[ before_launch: cpp_fused_relu_0 ]" in done.stdout
    assert "extern_kernels" not in done.stdout
    assert "stock's level: 0" in done.stdout


def test_stop_on_nan(tmp_path: Path) -> None:
    done = child("-m", "kernelscope", "run", "--stop-on", "nan", str(SCRIPT), "nan", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "this call produced it" in done.stderr
    assert "values.py:" in done.stderr
    assert "reached the end" not in done.stdout
    run = load(tmp_path / "kscope-runs" / "values-1.kscope")
    [call] = {finding.call for finding in run.findings if finding.kind == "watch"}
    [found] = run.select(first=call, limit=1)
    saved = run.saved_tensors(call)
    assert {moment for _, moment in saved} == {"before", "after"}
    assert not found.error, "the launch itself did not fail"
    for (position, moment), _ in saved.items():
        value = found.value(found.arguments[position].name, moment)
        assert bool(numpy.isnan(value).any()) == (moment == "after")
    script = child("-m", "kernelscope", "repro", "--call", str(call), "--run", cwd=tmp_path)
    assert script.returncode == 1, script.stdout + script.stderr
    assert "NaN, and no input has any: the kernel makes it" in script.stdout
    assert "generated from its recorded statistics" not in script.stdout
    assert [finding.kind for finding in run.findings if finding.kind == "watch"] == ["watch"]


def test_a_watch_that_stops_nothing_says_so(tmp_path: Path) -> None:
    """An eager operator may have made the value that somebody looks for."""
    (tmp_path / "eager.py").write_text(
        "import torch\nf = torch.compile(lambda x: x + 1)\nprint(f(torch.ones(4)).mul(1000).exp())\n"
    )
    done = child("-m", "kernelscope", "run", "--stop-on", "inf", "eager.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sentence = "no watched call met --stop-on inf; eager operators were not watched: add --ops all"
    assert sentence in done.stderr
    words = ("run", "--stop-on", "inf", "--ops", "all", "eager.py")
    done = child("-m", "kernelscope", *words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "no watched call" not in done.stderr


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (["--stop-on", "nun"], {}, "cannot watch 'nun': did you mean nan?"),
        ([], {PRINTER: "7"}, f"{PRINTER}='7': unknown level; use 0 (off)"),
        (["--save-to", "taken"], {}, "is not overwritten; name a new folder"),
        (["--save-to", "taken/below"], {}, "is not a writable directory"),
    ],
)
def test_bad_input(words: list[str], variables: dict[str, str], said: str, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    done = child("-m", "kernelscope", "run", *words, str(SCRIPT), cwd=tmp_path, **variables)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_replacing_by_eagers_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault is gone, and the rest of the program is as it was."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    torch._dynamo.reset()
    w = torch.eye(4)
    x = torch.randn(4, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.exp(x.mm(w)) + 1).mm(w).relu()

    with monkeypatch.context() as patched, torch._inductor.utils.fresh_inductor_cache():
        patched.setattr(CppVecOverrides, "exp", staticmethod(lambda x: f"({x} + {x})"))
        compiled = torch.compile(function)
        with replace("nothing_like_it", "eager") as replacer:
            wrong = compiled(x)
        assert replacer.replaced == 0
        with replace("cpp_fused*exp*", "eager") as replacer:
            right = compiled(x)
    torch._dynamo.reset()
    assert replacer.replaced == 1
    assert not torch.allclose(wrong, function(x))
    assert torch.allclose(right, function(x))
    assert "no kernel matched 'nothing_like_it'" in capsys.readouterr().err
    with (
        pytest.raises(ValueError, match="give a function, a tensor, a dtype, or 'eager'"),
        replace("a", "lazy"),
    ):
        pass


def test_eager_in_the_place_of_what_kernels_return() -> None:
    """Of an operator with two results, in an execution that is replaced as a whole: as bisect does it."""
    from kernelscope.shadowing.api import listening
    from kernelscope.shadowing.eager_launches import EagerSession

    torch._dynamo.reset()
    told: list[tuple[str, str]] = []
    session = EagerSession(lambda kind, name, about: told.append((kind, name)), judges=False)
    x = torch.randn(4, 4)
    function = torch.compile(lambda x: torch.topk(x.exp(), 2)[0] + 1)
    with listening(session):
        bare = function(x)
        session.begin(frozenset(), frozenset({"0"}))
        replaced = function(x)
    torch._dynamo.reset()
    assert torch.allclose(bare, replaced)
    assert len({name for kind, name in told if kind == "kernel"}) == 3
    assert session._launches.replaced == 3  # type: ignore[attr-defined]
    assert not session._launches.failures  # type: ignore[attr-defined]
    assert not session.result.unchecked
