"""The first screen: what is wrong, the user's line, where, how wrong, how it was found, what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kernelscope.events import Frame
from kernelscope.text.frames import source_line
from kernelscope.text.visible import one_line
from kernelscope.text.widths import shortened

from .answer import COMPILER, INNOCENT, KINDS, NOTHING, Answer

_LONGEST = 125  # characters of one fact: two lines of a terminal
_SENTENCE = 190  # of one that names a command or a list of files
_FAULTS = {COMPILER: " (a bug of the compiler)", **dict.fromkeys(INNOCENT, " (not a bug of the compiler)")}
_MOST_LINES, _NOTES = 15, 2
_FEW = 2  # lines of a workaround


def answer_lines(answer: Answer) -> Iterator[str]:
    """At most fifteen lines; notes have what is left of them."""
    lines = [*answer_facts(answer), *_limits(answer)]
    ending = list(_ending(answer))
    notes = answer.notes[: max(0, min(_NOTES, _MOST_LINES - len(lines) - len(ending)))]
    yield from (*lines, *(_fact("note", " ".join(note.split()), _SENTENCE) for note in notes), *ending)


def answer_facts(answer: Answer) -> Iterator[str]:
    """What is wrong, where and how wrong."""
    yield _cut(_headline(answer))
    if answer.line is not None:
        code = source_line(answer.line)
        yield _fact("line", _frame(answer.line) + (f": {code}" if code else ""))
    for name, text in (
        ("where", answer.where),
        ("reason", answer.reason),
        ("how wrong", answer.how_wrong),
        ("eager", answer.eager),
        ("cause", answer.cause),
        ("smallest", answer.smallest),
        ("workaround", _workaround(answer)),
    ):
        if text:
            yield _fact(name, text)


def _limits(answer: Answer) -> Iterator[str]:
    """How far the answer goes."""
    if answer.checked and not answer.is_wrong:
        yield _fact("checked", "; ".join(answer.checked), 2 * _LONGEST)
    if answer.unchecked:
        yield _fact("not checked", "; ".join(answer.unchecked), 2 * _LONGEST)


def _ending(answer: Answer) -> Iterator[str]:
    """How it was found, and what to do."""
    yield _fact("found by", _steps(answer))
    yield _fact("folder", f"{answer.folder}: {', '.join(answer.files)}", _SENTENCE)
    for i, each in enumerate(answer.next[:2]):
        yield _fact("" if i else "next", each, _SENTENCE)


def _headline(answer: Answer) -> str:
    if answer.kind == NOTHING:
        return "nothing is wrong, as far as it was checked"
    stopped = f" ({answer.stopped} before the end)" if answer.stopped else ""
    return f"{KINDS[answer.kind]}{_FAULTS.get(answer.fault, '')}: {answer.what}{stopped}"


def _workaround(answer: Answer) -> str:
    lines = answer.workaround
    return "; ".join(lines) if len(lines) <= _FEW else f"{len(lines)} lines of Python in answer.json"


def _steps(answer: Answer) -> str:
    each = [f"{step.name} {step.seconds:.0f} s" for step in answer.steps]
    return f"{', '.join(each)}; {answer.seconds:.0f} s in all"


def _frame(frame: Frame) -> str:
    inside = frame.file.startswith(os.getcwd() + os.sep)
    return str(Frame(os.path.relpath(frame.file) if inside else frame.file, frame.line, frame.function))


def _fact(name: str, text: str, longest: int = _LONGEST) -> str:
    return f"  {name:<11} {shortened(one_line(text), longest)}"


def _cut(text: str) -> str:
    return shortened(one_line(text), _LONGEST + 75)
