"""The first screen of `kernelscope why`, and its exit status."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

from kernelscope import diagnosis
from kernelscope.diagnosis import output_files as output_files_module
from kernelscope.diagnosis.answer import KINDS, NOTHING, Answer
from kernelscope.diagnosis.answer_text import answer_facts, answer_lines
from kernelscope.diagnosis.diagnose import Diagnosis
from kernelscope.diagnosis.output_files import PAGE, OutputFiles
from kernelscope.diagnosis.progress import Progress
from kernelscope.diagnosis.question import Question
from kernelscope.diagnosis.recorded import Recorded
from kernelscope.diagnosis.steps import PURPOSES, Step, Steps
from kernelscope.events import Frame
from kernelscope.processes.time_limit import TimeIsUp, limited
from kernelscope.repro.issue_text import report
from kernelscope.store.stored_run import load
from kernelscope.text.widths import wrapped


def full(kind: str) -> Answer:
    """With every fact, each as long as it gets."""
    long = "a word or two of it " * 20
    return Answer(
        kind, "compiler", long, Frame("/home/me/train.py", 12, "step"), long, "", long, long, long, long,
        ("config.a = 1",), [long], [long], [long] * 9, [long] * 9, [Step("run", "kernelscope run", 3.0)],
        "kscope-runs/train-why-1", ["report.html", "issue/issue.md"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_screen_whatever_is_known(kind: str) -> None:
    lines = list(answer_lines(full(kind)))
    assert len(lines) <= 15
    assert sum(len(list(wrapped(line, 80))) for line in lines) <= 40  # no fact fills the screen alone
    assert lines[0].startswith(KINDS[kind])


def test_a_clean_bill_says_what_was_checked_and_what_was_not() -> None:
    answer = Answer(checked=["three kernels"], unchecked=["the optimizer"])
    text = "\n".join(answer_lines(answer))
    assert text.startswith("nothing is wrong, as far as it was checked")
    assert "three kernels" in text
    assert "the optimizer" in text


def test_the_exit_status() -> None:
    assert Answer().status == 0
    assert Answer(stopped="interrupted").status == 2
    assert Answer("unknown").status == 2
    for kind in KINDS.keys() - {NOTHING, "unknown"}:
        assert Answer(kind).status == 1
        assert Answer(kind, stopped="interrupted").status == 1


def test_hidden_characters_stay_visible() -> None:
    text = "\n".join(answer_lines(Answer("crash", what="a\x1b[2Jb\nc")))
    assert "\x1b" not in text
    assert r"a\x1b[2Jb\nc" in text


def test_the_facts_are_in_the_bug_report(tmp_path: Path) -> None:
    path = tmp_path / "sample.kscope"
    write_sample(path)
    answer = Answer("crash", "compiler", "it was killed by SIGSEGV", where="kernel k (cpp), call 3")
    text = report(load(path), None, [], facts=list(answer_facts(answer)))
    assert text.startswith("# `the process crashes (a bug of the compiler): it was killed by SIGSEGV`")
    assert "kernel k (cpp), call 3" in text


def test_a_file_that_cannot_be_made_does_not_lose_the_answer(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample.kscope")
    output_files = OutputFiles(tmp_path, Steps(Progress(io.StringIO())), Question(["train.py"], "train"))
    output_files.run = Recorded(tmp_path / "sample.kscope", 0)
    (tmp_path / PAGE).mkdir()  # in the way of the page
    answer = Answer("nan", "program", "made 8 NaN")
    output_files.make(answer)
    output_files.keep(answer)
    assert "made 8 NaN" in (tmp_path / "answer.txt").read_text()
    assert any(note.startswith("there is no report: ") for note in answer.notes)


def test_every_step_has_a_purpose() -> None:
    source = "".join(p.read_text() for p in Path(diagnosis.__file__).parent.glob("*.py"))
    taken = set(re.findall(r"(?:take\(\s*|_add\(answer, )\"(\w+)\"", source))
    assert {"run", "eager", "shadow", "repro", "issue"} <= taken
    assert taken <= PURPOSES.keys()


def test_a_time_limit() -> None:
    with pytest.raises(TimeIsUp), limited(0.05):
        time.sleep(60)
    with limited(0):
        pass


@pytest.mark.parametrize("step", ["report", "issue"])
def test_an_interruption_while_files_are_made_does_not_lose_the_answer(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    write_sample(tmp_path / "sample.kscope")
    monkeypatch.setattr(output_files_module, {"report": "write", "issue": "write_issue"}[step], interrupted)
    diagnosed = Diagnosis(Question(["train.py"], "train"), tmp_path, Progress(io.StringIO()))

    def search() -> None:
        diagnosed._left.run = Recorded(tmp_path / "sample.kscope", 0)
        diagnosed.answer.kind, diagnosed.answer.fault, diagnosed.answer.what = "crash", "compiler", "a fault"

    monkeypatch.setattr(diagnosed, "_search", search)
    answer = diagnosed.run()
    assert diagnosed.status == 130
    kept = json.loads((tmp_path / "answer.json").read_text())
    assert (kept["kind"], kept["stopped"]) == ("crash", "interrupted")
    assert f"{step} was not finished: interrupted" in answer.unchecked
    assert "to start the search again" in (tmp_path / "answer.txt").read_text()
