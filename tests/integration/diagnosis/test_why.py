"""`kernelscope why` on scripts that fail in different ways, and on one that does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.torch_release import RELEASE

from kernelscope.diagnosis.answer import KINDS

SCRIPTS = Path(__file__).parents[2] / "programs" / "failing_scripts"
COMPILER, PROGRAM = "compiler", "program"


@dataclass(frozen=True)
class Case:
    script: str
    kind: str
    fault: str
    line: int = 0  # of the script; 0: none is known
    texts: tuple[str, ...] = ()  # in the first screen
    steps: tuple[str, ...] = ()  # that are needed, in order
    files: tuple[str, ...] = ()
    status: int = 1
    only: tuple[int, int] = (0, 0)  # release of torch that has the bug


CASES = [
    Case("crash_in_compile", "crash-in-compile", COMPILER, 11, ("lowering digamma", "smallest"),
         ("run", "eager", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md")),
    Case("crash_in_kernel", "crash", COMPILER, 11, ("SIGSEGV, inside a kernel", "cpp_fused_add_erf_sin_0"),
         ("run", "eager", "bisect", "report", "issue"), ("issue/issue.md",)),
    Case("makes_nan", "nan", PROGRAM, 8, ("made 8 NaN of 32 elements", "eager makes the same NaN"),
         ("run", "shadow", "stop", "report", "repro")),
    Case("wrong_lowering", "wrong-numbers", COMPILER, 11, ("cpp_fused_exp_mul_tanh_0", "tanh", "1 % off"),
         ("run", "shadow", "bisect", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md")),
    Case("wrong_pass", "wrong-numbers", COMPILER, 11, ("post_grad_custom_post_pass", "where eager has"),
         ("run", "shadow", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md")),
    Case("public_bug", "wrong-numbers", COMPILER, 9, ("functionalization", "unfold"),
         ("run", "shadow", "reduce", "report", "issue"), ("reduced/reduced.py", "issue/issue.md"),
         only=(2, 13)),
    Case("varies", "varies", PROGRAM, 27, ("varies.total", "different outputs"),
         ("run", "shadow", "determinism", "report", "repro")),
    Case("nothing_compiled", "nothing-compiled", PROGRAM, 10, ("because of a graph break",),
         ("run", "report")),
    Case("recompiles", "recompiles", PROGRAM, 6, ("step was compiled 8 times", "len(history)"),
         ("run", "shadow", "report")),
    Case("failing_assert", "wrong-numbers", COMPILER, 6, ("Dynamo", "AssertionError"),
         ("run", "eager", "shadow", "report", "issue"), ("issue/issue.md",), only=(2, 13)),
    Case("own_mistake", "exception", PROGRAM, 8, ("mat1 and mat2 shapes", "the same failure without"),
         ("run", "eager", "report")),
    Case("right", "nothing", "", 0, ("nothing is wrong, as far as it was checked", "against eager", "3 runs",
          "not checked code that is not compiled"),
         ("run", "shadow", "determinism", "report"), status=0),
]  # fmt: skip
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


def answer_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "answer.json").read_text()))


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.script, marks=() if c.script in QUICK else pytest.mark.slow) for c in CASES],
)
def test_each_kind_of_failure(case: Case, tmp_path: Path) -> None:
    if any(case.only) and case.only != RELEASE:
        pytest.skip("a bug of another release of torch")
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    began = time.monotonic()
    done = why(tmp_path, "-o", "found", f"{case.script}.py", status=case.status)
    seconds = time.monotonic() - began
    answer = answer_of(tmp_path / "found")
    assert (answer["kind"], answer["fault"]) == (case.kind, case.fault), done.stdout
    assert (answer["line"] or {"line": 0})["line"] == case.line, done.stdout
    for text in case.texts:
        assert text in done.stdout, done.stdout
    assert len(done.stdout.splitlines()) <= 15, done.stdout
    assert done.stdout == (tmp_path / "found" / "answer.txt").read_text()
    # Only what is needed, in at most twice the time that it takes.
    assert tuple(step["name"] for step in answer["steps"]) == case.steps
    assert seconds <= 2 * answer["seconds"] + 2
    for name in (*case.files, "report.html"):
        assert name in answer["files"]
    for name in answer["files"]:
        assert (tmp_path / "found" / name).is_file(), name
    assert case.kind in KINDS


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


def test_json_and_a_script_without_torch(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('no torch here')\n")
    done = why(tmp_path, "--json", "plain.py", status=1)
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["status"]) == ("nothing-compiled", 1)
    assert "no process imported torch" in answer["what"]
    assert "no torch here" in done.stderr


def test_two_conditions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("")
    done = why(tmp_path, "--check", "true", "--message", "x", "plain.py", status=2)
    assert "choose one kind of failure" in done.stderr


def test_a_condition_that_was_not_tested_and_a_script_that_cannot_run_twice(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text("import sys\nprint('read', input())\n")
    done = why(tmp_path, "--quick", "--predicate", "check.py:f", "reads.py", status=2, said="a line\n")
    assert "read a line" in done.stderr
    assert done.stdout.startswith("no answer: the condition was not tested, because of --quick")
    assert "the script failed when it was run again: EOFError" in done.stdout


def test_a_condition_that_the_run_itself_shows(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(147)\n")
    done = why(tmp_path, "--quick", "--fails-on", "exception", "leaves.py", status=1)
    assert done.stdout.startswith("the program fails (not a bug of the compiler): ended with status 147")
    assert "report.html" not in done.stdout  # nothing was recorded
