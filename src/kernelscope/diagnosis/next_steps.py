"""What to do after each kind of answer."""

from __future__ import annotations

from pathlib import Path

from .answer import COMPILER, NOTHING, Answer
from .question import Question, on_run

_STOPPED, _PAGE = "stopped.kscope", "report.html"


def add_next_steps(answer: Answer, question: Question) -> None:
    """Where the search itself has not said more."""
    if answer.stopped:
        answer.next.append(f"to start the search again: {question.again}")
    elif answer.kind == NOTHING:
        answer.next.append(
            "if you see a failure that this does not: "
            + question.typed("why", "--predicate", "FILE:FUNCTION")
        )
    elif answer.kind == "nan" and (Path(answer.folder) / _STOPPED).is_dir():
        answer.next.append(f"look at the inputs: {on_run('show', f'{answer.folder}/{_STOPPED}', '--crash')}")
    elif answer.kind == "nan" and answer.fault != COMPILER:
        answer.next.append(f"to save the inputs: {question.typed('run', '--stop-on', 'nan')}")
    elif answer.kind == "varies" and _PAGE in answer.files:
        answer.next.append("open report.html: it compares the two runs, call by call")
    elif not answer.next:
        answer.next.append(
            "read issue/issue.md, then send it to https://github.com/pytorch/pytorch/issues"
            if any(name.startswith("issue") for name in answer.files)
            else f"open {_PAGE}"
            if _PAGE in answer.files
            else f"read answer.txt in {answer.folder}"
        )
