"""No text depends on the locale: every text file and pipe of ours has its encoding written down."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("src", "benchmarks", "docs", "examples")
WORTH_PARSING = re.compile(r"open\(|(read|write)_text\(|text=|universal_newlines=")
MODE = re.compile(r"[rwaxt+]+")


def in_locale(tree: ast.AST) -> Iterator[int]:
    """The lines of calls that read or write text in the locale's encoding."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or any(word.arg == "encoding" for word in call.keywords):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        given = [value.value for value in call.args if isinstance(value, ast.Constant)]
        words = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
        mode = words.get("mode", next((value for value in given if _is_mode(value)), None))
        is_file = name in ("open", "fdopen") and (
            _is_mode(mode) or (isinstance(call.func, ast.Name) and "b" not in str(given[-1:]))
        )
        is_whole = isinstance(call.func, ast.Attribute) and name in ("read_text", "write_text")
        is_pipe = True in (words.get("text"), words.get("universal_newlines"))
        if is_file or is_whole or is_pipe:
            yield call.lineno


def _is_mode(value: object) -> bool:
    return isinstance(value, str) and MODE.fullmatch(value) is not None


def test_every_text_has_an_encoding() -> None:
    found = []
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if WORTH_PARSING.search(source):
            found += [f"{path.relative_to(ROOT)}:{line}" for line in in_locale(ast.parse(source))]
    assert not found, "give each an encoding: " + ", ".join(sorted(found))


@pytest.mark.parametrize(
    "source",
    [
        "open(p)", 'open(p, "w")', 'p.open("a")', 'open(p, mode="r")', 'os.fdopen(n, "w")', "p.read_text()",
        "p.write_text(t)", "subprocess.run(w, text=True)", "Popen(w, universal_newlines=True)",
    ],
)  # fmt: skip
def test_one_without_is_noticed(source: str) -> None:
    assert list(in_locale(ast.parse(source))) == [1]


@pytest.mark.parametrize(
    "source",
    [
        'open(p, "rb")',
        'p.open("wb")',
        "recording.open()",
        'p.read_text(encoding="utf-8")',
        "os.open(p, flags)",
    ],
)
def test_others_are_left_alone(source: str) -> None:
    assert not list(in_locale(ast.parse(source)))
