"""`kernelscope why` on scripts that fail in different ways, and on one that does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.failing_scripts import CASES, SCRIPTS, Case, answer_of, check_answer
from tests.support.torch_release import RELEASE

QUICK = ("nothing_compiled", "own_mistake")  # a few seconds each


def why(folder: Path, *words: str, status: int, said: str = "") -> subprocess.CompletedProcess[str]:
    """In a folder of its own, with a compile cache of its own: what it takes is not what a cache saves."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", "why", *words],
        cwd=folder, env=environment, input=said, capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.script, marks=() if c.script in QUICK else pytest.mark.slow) for c in CASES],
)
def test_each_kind_of_failure(case: Case, tmp_path: Path) -> None:
    if not case.applies_to(RELEASE):
        pytest.skip("a bug of another release of torch")
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    began = time.monotonic()
    done = why(tmp_path, "-o", "found", f"{case.script}.py", status=case.status)
    seconds = time.monotonic() - began
    answer = check_answer(case, tmp_path / "found", done.stdout)
    # What it does besides its steps; benchmarks/why.py compares it with the commands typed one by one.
    assert seconds <= 2 * answer["seconds"] + 2


LATE_NAN = """\
import torch

@torch.compile
def normalized(x):
    return x / x.sum(-1, keepdim=True)

for step in range(4):
    x = torch.ones(4, 8)
    x[2] = step - 2
    print(normalized(x).sum())
"""


@pytest.mark.slow
def test_a_nan_of_a_later_execution_has_its_inputs(tmp_path: Path) -> None:
    """The first execution of a graph is looked at in full, the others only where it is asked for."""
    (tmp_path / "late.py").write_text(LATE_NAN)
    why(tmp_path, "-o", "found", "late.py", status=1)
    answer = answer_of(tmp_path / "found")
    assert (answer["kind"], answer["fault"], answer["notes"]) == ("nan", "program", [])
    [script] = [name for name in answer["files"] if name.startswith("repro/")]
    assert script != "repro/repro_call_0.py"
    text = (tmp_path / "found" / script).read_text()
    assert "generated from" not in text
    assert (tmp_path / "found" / script).with_suffix(".safetensors").exists()


SLEEPING = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def test_a_time_limit_ends_the_program_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPING)
    done = why(tmp_path, "--timeout", "3", "sleeps.py", status=2)
    assert done.stdout.startswith("no answer: the time limit was reached during run")
    answer = answer_of(tmp_path / "kscope-runs" / "sleeps-why-1")
    assert answer["stopped"] == "the time limit was reached"
    assert answer["steps"][0]["found"].startswith("not finished")


def test_an_interruption_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPING)
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelscope", "why", "sleeps.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "begun" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "to start the search again: kernelscope why sleeps.py" in said
    assert (tmp_path / "kscope-runs" / "sleeps-why-1" / "answer.json").is_file()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("script", "step"),
    [("right", "shadow"), ("right", "determinism"), ("wrong_pass", "reduce"), ("wrong_lowering", "bisect")],
)  # fmt: skip
def test_ctrl_c_in_each_step(script: str, step: str, tmp_path: Path) -> None:
    """As the keyboard sends it: to all processes of the terminal. Nothing goes on running."""
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelscope", "why", "-o", "found", f"{script}.py"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    while f"kernelscope: {step}: " not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(3)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert f"{step} was not finished: interrupted" in " ".join(said.split())
    assert answer_of(tmp_path / "found")["stopped"] == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_json_and_a_script_without_torch(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('no torch here')\n")
    done = why(tmp_path, "--json", "plain.py", status=1)
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["status"]) == ("nothing-compiled", 1)
    assert "no process imported torch" in answer["what"]
    assert "no torch here" in done.stderr


def test_two_checks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("")
    done = why(tmp_path, "--check", "true", "--message", "x", "plain.py", status=2)
    assert "choose one kind of failure" in done.stderr


def test_a_check_that_was_not_run_and_a_script_that_cannot_run_twice(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text("import sys\nprint('read', input())\n")
    (tmp_path / "check.py").write_text("def f(folder):\n    return True\n")
    done = why(tmp_path, "--quick", "--predicate", "check.py:f", "reads.py", status=2, said="a line\n")
    assert "read a line" in done.stderr
    assert done.stdout.startswith("no answer: the check was not run, because of --quick")
    assert "the script failed when it was run again: EOFError" in done.stdout


def test_a_check_that_the_run_itself_shows(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(147)\n")
    done = why(tmp_path, "--quick", "--fails-on", "exception", "leaves.py", status=1)
    assert done.stdout.startswith("the program fails (not a bug of the compiler): ended with status 147")
    assert "report.html" not in done.stdout  # nothing was recorded
