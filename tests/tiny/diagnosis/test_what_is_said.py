"""`kernelscope why` says only what it has seen: of failures, checks, later runs and next steps."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tests.support.sample_runs import full_call, info, site, write_sample

from kernelscope.bisection.result import BisectResult
from kernelscope.bisection.script_search import Request
from kernelscope.cli import main
from kernelscope.diagnosis import verdicts
from kernelscope.diagnosis.answer import COMPILER, PROGRAM, UNKNOWN, Answer
from kernelscope.diagnosis.answer_text import answer_lines
from kernelscope.diagnosis.compiler_search import add_cause
from kernelscope.diagnosis.diagnose import NEVER_CHECKED
from kernelscope.diagnosis.failures import is_same_failure
from kernelscope.diagnosis.next_steps import add_next_steps
from kernelscope.diagnosis.question import Question
from kernelscope.diagnosis.quiet_programs import last_line, output_to
from kernelscope.diagnosis.recorded import Recorded, record
from kernelscope.repro.issue_text import Shown, report
from kernelscope.shadowing.script_parent import ScriptAnswer
from kernelscope.store import folder
from kernelscope.store.stored_run import load
from kernelscope.store.writer_thread import Writer

QUESTION = Question(["train.py"], "train")
QUICK = Question(["train.py"], "train", Request(("train.py",), "predicate", "check.py:f"), quick=True)
EAGER_TOO = "The program fails with backend='eager' too, where nothing is compiled: …"


def recorded(path: Path, status: int, exception: str = "", line: int = 12) -> Recorded:
    path.mkdir()
    writer = Writer(path, info(settings={"stages": True}))
    if exception:
        writer.set_metadata("exception", exception)
        writer.set_metadata("exception_at", f"/home/me/train.py:{line} in main")
    writer.close()
    folder.write_invocation(path, folder.Invocation(("python", "train.py"), "/", 1, 2, status))
    return Recorded(path, status)


def test_a_script_that_ends_its_own_process_has_not_crashed(tmp_path: Path) -> None:
    writer = write_sample(tmp_path / "live.kscope", close=False)
    path = shutil.copytree(tmp_path / "live.kscope", tmp_path / "run.kscope")  # as nobody writes to it
    writer.forget()
    folder.write_invocation(path, folder.Invocation(("python", "train.py"), "/", 1, 2, 0))
    run = Recorded(path, 0)
    assert run.ending.kind == "crash"
    assert run.has_left_early
    assert not run.failed
    answer = Answer()
    verdicts.of_early_leaving(answer, run)
    assert answer.status in (1, 2)
    assert "sys.exit" in answer.next[-1]
    folder.write_invocation(path, folder.Invocation(("python", "train.py"), "/", 1, 2, -11))
    assert Recorded(path, -11).failed


def test_kernels_that_no_later_step_sees_are_not_judged(tmp_path: Path) -> None:
    nothing = ScriptAnswer({"launches": 0, "regions": 0, "culprit": None}, "", "", 2)
    path = tmp_path / "run.kscope"
    write_sample(path)
    alone = Recorded(path, 0)
    assert verdicts.is_unseen(nothing, alone)
    assert not verdicts.is_unseen(ScriptAnswer({"launches": 3, "regions": 1}, "", "", 0), alone)
    answer = Answer()
    verdicts.of_unseen_kernels(answer, alone)
    assert answer.status == 2
    assert "later runs have no standard input" in answer.what
    write_sample(path / "child-42")
    verdicts.of_unseen_kernels(answer, Recorded(path, 0))
    assert "processes that the script starts" in answer.what


def test_a_program_that_exits_with_a_status_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_bytes(b"reading\n\xff no data: token=abcdefgh12345678\x1b[2J\n\n")
    printed = last_line(tmp_path / "output.txt")
    assert "no data" in printed
    assert "abcdefgh12345678" not in printed
    answer = Answer()
    runs = recorded(tmp_path / "a.kscope", 3), recorded(tmp_path / "b.kscope", 3)
    verdicts.of_own_failure(answer, *runs, printed)
    assert answer.reason.startswith("the last line that it printed: ")
    assert "\x1b" not in "\n".join(answer_lines(answer))
    assert last_line(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("compiled", "eager", "is_same"),
    [
        ((3, ""), (3, ""), True),
        ((3, ""), (4, ""), False),
        ((1, ""), (1, "ValueError: no"), False),
        ((1, "ValueError: loss 3.5 at 0x7f00"), (1, "ValueError: loss 4.25 at 0x7e11"), True),
        ((1, "ValueError: loss is wrong"), (1, "ValueError: no such file"), False),
        ((1, "ValueError: loss is wrong"), (1, "KeyError: loss is wrong"), False),
        (
            (1, "TorchRuntimeError: RuntimeError when making it"),
            (1, "RuntimeError: mat1"),
            True,
        ),
        ((1, "TorchRuntimeError: TypeError when making it"), (1, "RuntimeError: mat1"), False),
        ((1, "ValueError: no"), (2, "ValueError: no"), False),
    ],
)
def test_the_same_failure(
    compiled: tuple[int, str], eager: tuple[int, str], is_same: bool, tmp_path: Path
) -> None:
    """At the same line each time: that alone does not make it the same."""
    first, second = recorded(tmp_path / "a.kscope", *compiled), recorded(tmp_path / "b.kscope", *eager)
    assert is_same_failure(first, second) == is_same


@pytest.mark.parametrize("status", [147, 130, 143, 139])
def test_a_high_exit_status_is_not_a_signal(status: int, tmp_path: Path) -> None:
    run = record([sys.executable, "-c", f"import sys; sys.exit({status})"], tmp_path / "run", "")
    assert run.failed
    assert run.failure == f"ended with status {status}"
    closed = recorded(tmp_path / "closed.kscope", status)  # a program that has imported torch
    assert closed.interruption is None
    assert closed.failure == f"ended with status {status}"


def test_a_signal_is_a_signal(tmp_path: Path) -> None:
    kill = "import os; os.kill(os.getpid(), {})"
    run = record([sys.executable, "-c", kill.format(int(signal.SIGUSR1))], tmp_path / "run", "")
    assert run.failure == "was killed by SIGUSR1"
    with pytest.raises(KeyboardInterrupt):
        record([sys.executable, "-c", kill.format(int(signal.SIGTERM))], tmp_path / "ended", "")


def test_a_program_that_handles_the_signal_meant_for_the_search(tmp_path: Path) -> None:
    code = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
    code += "os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        record([sys.executable, "-c", code], tmp_path / "run", "")


def test_later_runs_have_no_input(tmp_path: Path) -> None:
    before = os.fstat(0)
    with output_to(tmp_path / "output.txt"):
        assert os.path.samestat(os.fstat(0), os.stat(os.devnull))
        assert os.read(0, 10) == b""
    assert os.path.samestat(os.fstat(0), before)


def shadowed(failed: str, status: int = 2, problem: str = "") -> ScriptAnswer:
    form = {"culprit": None, "status": status, "problem": problem}
    return ScriptAnswer(form, "", failed, status)


def test_a_script_that_fails_when_it_is_run_again(tmp_path: Path) -> None:
    fine = recorded(tmp_path / "a.kscope", 0)
    found = shadowed(
        "the script failed: EOFError: EOF when reading", problem="no compiled kernel was launched"
    )
    again = "the script failed when it was run again: EOFError: EOF when reading"
    assert verdicts.shadow_problem(found, fine) == again
    assert verdicts.shadow_problem(found, recorded(tmp_path / "b.kscope", 1, "ValueError: no")) == again
    failed = recorded(tmp_path / "c.kscope", 1, "EOFError: EOF when reading")
    assert verdicts.shadow_problem(found, failed) == "no compiled kernel was launched"
    assert verdicts.shadow_problem(shadowed("", problem="too few"), fine) == "too few"


def test_a_check_that_was_not_run_is_no_clean_bill(tmp_path: Path) -> None:
    answer = Answer()
    verdicts.of_unrun_check(answer, recorded(tmp_path / "a.kscope", 0))
    add_next_steps(answer, QUICK)
    text = "\n".join(answer_lines(answer))
    assert answer.status == 2
    assert text.startswith("no answer: the check was not run, because of --quick; the script finishes")
    assert "leave out --quick" in text


def test_a_check_that_fails_in_eager_too() -> None:
    result = BisectResult(problem=EAGER_TOO, failure="f is true", failed=3, runs=3)
    for status, fault in ((0, PROGRAM), (2, UNKNOWN)):
        answer = Answer()
        verdicts.of_failed_check(answer, result, shadowed("", status))
        add_cause(answer, result)
        assert answer.fault == fault
        assert "with backend='eager' too" in answer.what
        assert "only when" not in answer.what
    answer = Answer()
    verdicts.of_failed_check(answer, BisectResult(failure="f is true", failed=3, runs=3), shadowed("", 0))
    assert answer.fault == COMPILER
    assert "only when the program is compiled: f is true" in answer.what


def test_what_fails_with_the_eager_backend_but_not_without_the_compiler_is_not_of_the_program() -> None:
    answer = Answer("exception", UNKNOWN, eager="without the compiler the script finishes normally")
    add_cause(answer, BisectResult(problem=EAGER_TOO, failed=3, runs=3))
    assert answer.fault == UNKNOWN
    assert answer.cause.startswith("Dynamo")


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "1e300", "soon"])
def test_a_time_limit_that_is_not_one(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["why", f"--timeout={given}", "train.py"])
    assert left.value.code == 2
    assert "number of seconds" in capsys.readouterr().err


def test_next_steps_name_only_what_exists(tmp_path: Path) -> None:
    for kind in ("nan", "varies", "exception", "unknown"):
        answer = Answer(kind, UNKNOWN, folder=str(tmp_path))
        add_next_steps(answer, QUESTION)
        assert answer.next
        assert not any("stopped.kscope" in each or "report.html" in each for each in answer.next)
    (tmp_path / "stopped.kscope").mkdir()
    answer = Answer("nan", UNKNOWN, folder=str(tmp_path))
    add_next_steps(answer, QUESTION)
    assert answer.next == [f"look at the inputs: kernelscope show {tmp_path}/stopped.kscope --crash"]


def test_a_reduced_script_that_passes_is_not_said_to_reproduce(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample.kscope")
    run = load(tmp_path / "sample.kscope")
    for status, reproduces in ((0, False), (2, False), (1, True), (-11, True)):
        shown = Shown("reduced.py", "print()", "", status, ["reduced.py"], {"failure": "wrong-kernel"})
        assert shown.did_not_reproduce != reproduces
        assert ("## To reproduce" in report(run, None, [shown])) == reproduces


def test_the_cache_of_compiled_code_is_named_as_not_checked() -> None:
    assert any("Inductor's cache" in each for each in NEVER_CHECKED)
    text = "\n".join(answer_lines(Answer(unchecked=list(NEVER_CHECKED))))
    assert NEVER_CHECKED[-1] in text  # it fits


def test_a_crash_of_the_program_itself_names_the_kernel(tmp_path: Path) -> None:
    writer = write_sample(tmp_path / "live.kscope", close=False)
    executing = full_call(next(writer.flight), site(9, "shop.pick"))
    writer.enter(executing)
    path = shutil.copytree(tmp_path / "live.kscope", tmp_path / "run.kscope")
    writer.forget()
    folder.write_invocation(path, folder.Invocation(("python", "train.py"), "/", 1, 2, -signal.SIGSEGV))
    run, answer = Recorded(path, -signal.SIGSEGV), Answer()
    verdicts.of_own_failure(answer, run, run, "")
    assert (answer.kind, answer.fault) == ("crash", PROGRAM)
    assert answer.where == f"kernel {executing.site.kernel.name} (cpp), call {executing.index}"


def test_a_note_is_one_line_that_can_be_read() -> None:
    advice = "record the inputs with\n  kernelscope run --values save --stages your_script.py"
    answer = Answer(notes=[f"there is no repro: call 37, {'k' * 40}: in_ptr0 was not saved; {advice}"])
    [line] = [each for each in answer_lines(answer) if each.lstrip().startswith("note")]
    assert "in_ptr0 was not saved; record the inputs with kernelscope run --values save" in line
