"""The journal of a search: an interrupted search goes on, and a damaged journal is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tiny.bisection.made_up_compiler import bisected

from kernelscope.errors import RunError
from kernelscope.trials.journal import BISECT, FILE, Journal


def failing_k7(off: set[str], backend: str) -> bool:
    return backend == "" and "k7" not in off


def test_an_interrupted_bisection_goes_on(tmp_path: Path) -> None:
    whole, _ = bisected(failing_k7)
    calls = 0

    def interrupted(off: set[str], backend: str) -> bool:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return failing_k7(off, backend)

    with pytest.raises(KeyboardInterrupt):
        bisected(interrupted, folder=tmp_path)
    result, compiler = bisected(failing_k7, folder=tmp_path)
    assert result.resumed == 5
    assert result.trials == whole.trials == len(compiler.trials) + 5
    assert result.causes == whole.causes
    again, compiler = bisected(failing_k7, folder=tmp_path)
    assert not compiler.trials
    assert again.causes == whole.causes


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    bisected(failing_k7, folder=tmp_path)
    path = tmp_path / FILE
    text = path.read_text()
    path.write_text(text + '{"trial": {"ba')
    result, compiler = bisected(failing_k7, folder=tmp_path)
    assert result
    assert not compiler.trials
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense\nmore\n", "line 1: not an entry of a journal"),
        ('{"a": 1}\n{"b": 2}\n', "is not a journal"),
        (
            json.dumps({"kernelscope-bisect": 2, "command": ["y"]}) + "\n{}\n",
            "another search: command was",
        ),
        ("", "is not a journal"),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError, match=message):
        bisected(failing_k7, folder=tmp_path)


def test_a_result_as_json() -> None:
    result, _ = bisected(failing_k7)
    told: dict[str, Any] = json.loads(json.dumps(result.to_json()))
    assert told["cause"]["switches"][0]["name"] == "k7 (0, line 7)"
    assert {"workaround", "trials", "seconds", "confidence", "failed", "runs", "status"} <= told.keys()


def test_a_journal_that_was_cut_off_or_is_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / FILE
    whole = json.dumps(BISECT) + "\n"
    for torn in ('{"trial": {', "\0\0\0\n"):
        path.write_text(whole + torn)
        Journal(path, BISECT)
        assert path.read_text() == whole
    path.write_text('{"of": "others"}\nno newline')
    with pytest.raises(RunError, match="is not a journal of kernelscope-bisect"):
        Journal(path, BISECT)
    assert path.read_text() == '{"of": "others"}\nno newline'
