"""`kernelscope bisect`: real scripts, real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelscope.processes.quick_start import torch_is_for_gpus
from kernelscope.trials.outcome import KILLED, PASSED, RAISED, TIMED_OUT
from kernelscope.trials.settings import Settings, Switch
from kernelscope.trials.trial_processes import Workers

COMMAND = [sys.executable, "-m", "kernelscope", "bisect"]

# The second kernel is wrong: Inductor has a setting that plants this fault, for tests.
WRONG = """
import torch, torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)

@torch.compile
def f(x):
    return (x @ x).relu() + 1

@torch.compile
def g(x):
    return torch.nn.functional.gelu(x).sum(0)

x = torch.randn(16, 16)
g(x)
y = f(x)
expected = (x @ x).relu() + 1
print("the script ran to its end")
"""


def bisect(folder: Path, *words: str, status: int = 0, timeout: int = 900) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [*COMMAND, "--json", *words], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def script(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def kernel_of(result: dict[str, Any]) -> str:
    assert result["cause"]["axis"] == "kernel", result
    (switch,) = result["cause"]["switches"]
    return str(switch["info"]["kernel"])


@pytest.mark.timeout(900)  # with a torch for CUDA each trial is a new process
def test_a_script_is_bisected(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    result, said = bisect(tmp_path, "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"
    assert result["cause"]["switches"][0]["info"]["origin"].startswith("program.py:8")
    line = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None"
    assert result["workaround"] == [line]
    assert result["status"] == 0
    assert said.count("kernelscope: trial ") == result["trials"]
    folder = tmp_path / "kscope-runs" / "program-bisect-1"
    assert Path(result["folder"]) == folder
    assert "the script ran to its end" in (folder / "logs" / "trial-1.log").read_text()
    assert not (folder / "caches").exists()
    # Nothing is tried again when it is asked once more.
    again, _ = bisect(tmp_path, "--resume", "program.py")
    assert again["resumed"] == again["trials"] == result["trials"]
    assert again["causes"] == result["causes"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["torch.testing.assert_close(y, expected)", "raise SystemExit(1)"])
def test_a_bug_report_is_bisected(tmp_path: Path, end: str) -> None:
    """The usual one: a wrong kernel, and a last line that raises or exits because of it."""
    script(tmp_path, f"{WRONG}\nif not torch.equal(y, expected):\n    {end}\n")
    result, _ = bisect(tmp_path, "--no-workaround", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"
    assert "program-bisect-1" in result["folder"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_bug_report_without_a_wrong_kernel_is_bisected_by_its_own_failure(tmp_path: Path) -> None:
    traced = """
import torch
def f(x):
    return x * 2 if torch.compiler.is_dynamo_compiling() else x * 3
assert torch.equal(torch.compile(f)(torch.ones(8)), f(torch.ones(8))), "compiled and eager differ"
"""
    script(tmp_path, traced)
    result, said = bisect(tmp_path, "program.py", status=2)
    assert "fails with backend='eager' too" in result["problem"]
    assert "AssertionError: compiled and eager differ" in result["failure"]
    assert "searching for the cause of: raised: AssertionError" in said
    assert result["trials"] <= 8  # no pass and no setting was tried


# -- processes ---------------------------------------------------------------------------------------------

MODES = """
import ctypes, os, time
from pathlib import Path
mode = Path("mode").read_text()
if mode == "crash":
    ctypes.string_at(0)
if mode == "hang":
    time.sleep(1000)
if mode == "raise":
    raise KeyError("no such key")
if mode == "exit":
    raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("modes")
    before = os.getcwd()
    os.chdir(folder)
    try:
        job = {"words": [str(script(folder, MODES))], "check": "exception", "what": ""}
        with Workers(job, folder, timeout=20) as made:
            yield made
    finally:
        os.chdir(before)


def test_trials_are_forked_where_they_can_be(workers: Workers) -> None:
    workers.get_ready()
    if torch_is_for_gpus():
        assert workers._zygote is None
        assert "this torch is built for GPUs" in workers.notes[0]
    else:
        assert workers.notes == []
        assert workers._zygote is not None


@pytest.mark.parametrize(
    ("mode", "kind", "what"),
    [
        ("crash", KILLED, "killed by SIGSEGV"),
        ("raise", RAISED, "KeyError: 'no such key'"),
        ("exit", RAISED, "ScriptFailed: it exited with 3"),
        ("hang", TIMED_OUT, "after 3 s"),
    ],
)
def test_how_a_trial_ends_is_an_outcome(workers: Workers, mode: str, kind: str, what: str) -> None:
    Path("mode").write_text(mode)
    workers._timeout = 3 if mode == "hang" else 60
    outcome = workers.run(Settings())
    assert (outcome.kind, outcome.what) == (kind, what)
    Path("mode").write_text("pass")  # and the next one is not harmed
    workers._timeout = 60
    assert workers.run(Settings()).kind == PASSED


def test_only_what_changes_the_code_gets_a_process_of_its_own(workers: Workers) -> None:
    Path("mode").write_text("pass")
    workers._timeout = 60
    workers.run(Settings())
    first = workers._children
    workers.run(Settings(frozenset([Switch("kernel", "k")])))
    assert workers._children == first
    workers.run(Settings(frozenset([Switch("config", "torch._inductor.config.epilogue_fusion", False)])))
    assert workers._children == first + 1


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to run"),
        (["missing.py"], "there is no script missing.py"),
        (["--axis", "kernels", "program.py"], "--axis kernels: use one of backend"),
        (["--check", "true", "--fails-on", "nan", "program.py"], "choose one kind of failure: check or nan"),
        (["--resume", "program.py"], "no bisection of program"),
        (["--resume", "-o", "elsewhere", "program.py"], "elsewhere is not the folder of a bisection"),
        (["--confidence", "2", "program.py"], "between 0 and 1"),
        (["--timeout", "0", "program.py"], "greater than 0 seconds"),
        (["--", "ls"], "to run a command after it, use --check"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, words: list[str], message: str) -> None:
    script(tmp_path, "print()")
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_check_that_never_fails(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    result, _ = bisect(tmp_path, "--check", "true", "program.py", status=2)
    assert "did not fail in 3 baseline runs" in result["problem"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_check_that_always_fails(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    result, _ = bisect(tmp_path, "--check", "false", "program.py", status=2)
    assert "fails with backend='eager' too" in result["problem"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_program_without_compiled_code(tmp_path: Path) -> None:
    script(tmp_path, "import torch; torch.ones(3).sin()")
    result, _ = bisect(tmp_path, "program.py", status=2)
    assert "no compiled kernel was launched" in result["problem"]


def test_without_a_compiler(tmp_path: Path) -> None:
    """Trials are started all the same, and say what Inductor says."""
    script(tmp_path, WRONG)
    (tmp_path / "bin").mkdir()
    env = shutil.which("env")
    assert env is not None
    (tmp_path / "bin" / "env").symlink_to(env)
    environment = os.environ | {
        "PATH": str(tmp_path / "bin"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
    }
    environment.pop("CXX", None)
    words = [*COMMAND, "--runs", "2", "program.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "searching for the cause of: raised: InductorError: InvalidCxxCompiler" in done.stderr
    assert done.stdout.startswith("cause: backend inductor")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_check_command_that_cannot_be_run(tmp_path: Path) -> None:
    script(tmp_path, "print()")
    words = [*COMMAND, "--check", "no-such-command-here", "program.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'no-such-command-here' cannot be run" in done.stderr


# -- conditions --------------------------------------------------------------------------------------------

CHECK = """
import sys, torch
y, expected = torch.load("y.pt"), torch.load("expected.pt")
sys.exit(not torch.allclose(y, expected, atol=1e-4))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_command_decides(tmp_path: Path) -> None:
    script(tmp_path, WRONG + '\ntorch.save(y, "y.pt"); torch.save(expected, "expected.pt")\n')
    (tmp_path / "compare.py").write_text(CHECK)
    result, _ = bisect(tmp_path, "--check", f"{sys.executable} compare.py", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"
    assert result["workaround"] == ["torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_predicate_decides_in_spawned_processes(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    (tmp_path / "wrong.py").write_text(
        "import torch\ndef is_wrong(names): return not torch.allclose(names['y'], names['expected'])\n"
    )
    result, _ = bisect(tmp_path, "--spawn", "--predicate", "wrong.py:is_wrong", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["runtime_error", "compile_error"])
def test_an_exception(tmp_path: Path, fault: str) -> None:
    """Inductor's own test of its relu: the C++ compiler, or the kernel, fails."""
    script(tmp_path, WRONG.replace('"accuracy"', f'"{fault}"'))
    result, _ = bisect(tmp_path, "--fails-on", "exception", "program.py")
    assert result["workaround"] == ["torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None"]
    if fault == "runtime_error":
        assert kernel_of(result) == "cpp_fused_add_relu_0"
    else:
        assert [s["info"]["node"] for s in result["causes"]["lowering"]["switches"]] == ["relu"]


NAN = """
import torch
from torch._inductor.codegen.cpp import CppOverrides
torch._inductor.config.cpp.simdlen = 1
original = CppOverrides.log
CppOverrides.log = staticmethod(lambda x: f"std::log({x} - 1e6f)")

@torch.compile
def f(x):
    return (x @ x).abs().add(1).log() * 2

f(torch.ones(8, 8))
torch.compile(lambda x: x.sin())(torch.ones(8, 8))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_nan(tmp_path: Path) -> None:
    script(tmp_path, NAN)
    result, _ = bisect(tmp_path, "--fails-on", "nan", "program.py")
    assert "log" in kernel_of(result)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    script(tmp_path, WRONG)
    child = subprocess.Popen([*COMMAND, "program.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if line.startswith("trial 6:"):
            child.send_signal(signal.SIGINT)
            break
    said += child.stderr.read()
    assert child.wait() == 130
    assert "interrupted after" in said
    assert "kernelscope bisect --resume -o" in said
    result, _ = bisect(tmp_path, "--resume", "program.py")
    assert result["resumed"] >= 6
    assert kernel_of(result) == "cpp_fused_add_relu_0"


FLAKY = """
import random, os
random.seed(os.urandom(4))
if random.random() < 0.5:
    exec(open("wrong.py").read())
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_flaky_failure_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    script(tmp_path, FLAKY)
    result, _ = bisect(tmp_path, "--axis", "kernel", "--axis", "config", "--runs", "6", "program.py")
    assert kernel_of(result) == "cpp_fused_add_relu_0"
    assert result["repeats"] > 1
    assert result["confidence"] >= 0.99
    assert any("not deterministic" in note for note in result["notes"])
