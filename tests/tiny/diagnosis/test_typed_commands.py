"""What `kernelscope why` tells a user to type can be typed: in the same folder, whatever the names are."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

from kernelscope.analysis.determinism import DeterminismResult
from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.bisection.script_search import Request
from kernelscope.cli import main
from kernelscope.diagnosis import verdicts
from kernelscope.diagnosis.answer import PROGRAM, Answer
from kernelscope.diagnosis.next_steps import add_next_steps
from kernelscope.diagnosis.output_files import OutputFiles
from kernelscope.diagnosis.progress import Progress
from kernelscope.diagnosis.question import Question, check_words
from kernelscope.diagnosis.recorded import Recorded
from kernelscope.diagnosis.steps import Steps

ODD = ["my 'own' scripts/tr\u00e4in; rm.py", "--name", "a b", "$HOME", "*"]


def test_words_arrive_as_they_were_given() -> None:
    typed = Question(ODD, "train").typed("run", "--values", "stats")
    assert shlex.split(typed) == ["kernelscope", "run", "--values", "stats", *ODD]


def test_a_secret_is_not_written_down() -> None:
    typed = Question(["train.py", "--api-key", "abcdefgh12345678"], "train").typed("run")
    assert "abcdefgh12345678" not in typed


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(("t.py",), "check", "python 'a b.py' && true"), ["--check", "python 'a b.py' && true"]),
        (Request(("t.py",), "predicate", "my checks.py:f"), ["--predicate", "my checks.py:f"]),
        (Request(("t.py",), "exception", "no such"), ["--fails-on", "exception", "--message", "no such"]),
        (Request(("t.py",), "nan"), ["--fails-on", "nan"]),
    ],
)
def test_what_counts_as_a_failure_is_kept(request_: Request, words: list[str]) -> None:
    assert check_words(request_) == words
    question = Question(["t.py"], "t", request_, quick=True, seconds=60)
    again = shlex.split(question.again)
    assert again == ["kernelscope", "why", "--quick", "--timeout", "60", *words, "t.py"]
    stopped = Answer(stopped="interrupted")
    add_next_steps(stopped, question)
    assert stopped.next == [f"to start the search again: {question.again}"]


def test_commands_about_the_run_work_where_they_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has spaces and letters that are not ASCII; the run may be the part of one process."""
    monkeypatch.chdir(tmp_path)
    made = Path("what's wr\u00f6ng")
    write_sample(made / "run.kscope" / "child-42")
    steps = Steps(Progress(io.StringIO()))
    output_files = OutputFiles(made, steps, Question(["train.py"], "train"))
    output_files.run = Recorded(made / "run.kscope", 0)
    answer = Answer("crash", "compiler", "it was killed by SIGSEGV")
    output_files.make(answer)
    output_files.keep(answer)
    assert [step.name for step in steps.done] == ["report", "issue"]
    for step in steps.done:
        words = shlex.split(step.command)
        assert words[0] == "kernelscope"
        more = ["--no-run"] if step.name == "issue" else []
        assert main([*words[1:], *more]) == 0, step.command
    assert (tmp_path / "child-42.html").is_file()
    assert (tmp_path / "issue" / "issue.md").is_file()


def test_the_inputs_of_a_nan_are_shown_by_a_command_that_works(tmp_path: Path) -> None:
    made = tmp_path / "a b"
    write_sample(made / "stopped.kscope")
    answer = Answer("nan", PROGRAM, folder=str(made))
    add_next_steps(answer, Question(["train.py"], "train"))
    words = shlex.split(answer.next[0].partition(": ")[2])
    assert words == ["kernelscope", "show", f"{made}/stopped.kscope", "--crash"]
    assert main(words[1:]) == 0


def test_a_program_that_differs_by_itself_is_not_a_bug() -> None:
    found = DeterminismResult(
        3, 2, divergence=Divergence("inputs-differ", "its inputs differ", 1, kernel_name="aten.full"),
        by_the_program="it passes a number that differs each time, at call 1",
    )  # fmt: skip
    answer = Answer()
    verdicts.of_variation(answer, found)
    assert (answer.kind, answer.fault) == ("varies", PROGRAM)
    assert answer.what == f"the program itself varies: {found.by_the_program}"
    assert "no kernel is at fault" in answer.where
