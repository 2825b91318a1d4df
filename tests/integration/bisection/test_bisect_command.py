"""`kernelscope bisect`: real scripts, real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integration.bisection.bisected_scripts import COMMAND, WRONG, bisect, kernel_of, script


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


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to run"),
        (["missing.py"], "there is no script missing.py"),
        (["--axis", "kernels", "program.py"], "--axis kernels: use one of backend"),
        (["--check", "true", "--fails-on", "nan", "program.py"], "choose one kind of failure: --check or"),
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
        "TORCHINDUCTOR_VEC_ISA_OK": "",  # the check of vector instructions fails, too
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
