"""Every string of kernelscope that a user may read, and those with wording that is not plain English.

    python tools/user_strings.py            print file:line and text of each string
    python tools/user_strings.py cli views  of these rooms only
    python tools/user_strings.py --check    print only strings with banned wording; exit status 1 if any

In Python files these are all strings with prose in them except docstrings, SQL and code: help texts, messages
of exceptions and findings, warnings, printed lines. Docstrings count where an agent reads them. In scripts of
the page and in C++ strings are found by their quotes; in HTML and Markdown they are the lines of text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernelscope"
DOCS = "docs"  # as a room: what users read beside the program

# What to write instead. The patterns hit wording, not topics: "there is no call 7" and "no longer" are fine.
BANNED = [
    (r"\b(nobody|somebody|someone|anybody)\b", "name what acts"),
    (r"(?<!there )(?<!There )\b(is|are|was|were) no (?!longer\b|more\b|less\b)", "is not a …"),
    (r"\bwhat of\b", "which, what to … about"),
    (r"\bshall\b", "must, will"),
    (r"\b(as|is|are|was|were|not) asked\b|\basked for\b|\basked to\b", "say what was given or requested"),
    (r"\b(is|are|was|were|be|been) told\b|\btells? nothing\b", "is reported"),
    (r"\b(is|are|was|were|be) said\b", "is reported; inconclusive"),
    (r"\bown(s|ed)? up\b", "is not recorded"),
    (r"\bsuch an?\b|\bwith such\b|\bno such\b", "e.g., or name it"),
    (r"\b(come|came|comes) to (its|the|their) (end|same)\b|\bcame to\b", "finished; equals"),
    (r"\bget to (its|the) end\b|\bruns? to its end\b", "finish"),
    (r"\bonce more\b|\bagain and again\b", "again, repeatedly"),
    (r"\b(go|goes|going) on with\b", "continue"),
    (r"\b(else|others?|another)( (?!more\b|by\b)\w+){0,3} than\b", "differs from"),
    (r"\b(differs?|vary|varies) by itself\b|\botherwise than\b", "the program itself varies; differently"),
    (r"[.;] of a run that\b|\bOf a run that\b", "if you did not make the run, …"),
    (r"\bexists? already\b|\bnot go with\b", "already exists; cannot be combined with"),
    (r"\bis not there\b|\bany more\b", "does not exist; no longer"),
    (r"\bthe same each time\b", "identical"),
    (r"\bmend(s|ed)?\b|\bdear\b", "fixed; slow"),
    (r"\bof (its|their) kind\b", "candidates"),
    (r"\bspeaks? of\b|\bwho reads\b|\bbelieves\b", "refers to; readers"),
    (r"\bis there already\b", "already exists"),
    (r"\b(it|which) takes two\b", "needs two"),
    (r"\blooks? (in)?to it\b|\bhas it not\b", "is missing"),
    (
        r"\bwhat (it|they|\w+ ranks?|ranks? \S+|(the|one|an?) (\w+ )?\w+) (reads?|holds?|held)\b",
        "its inputs, its values",
    ),
    (r"\b(reads|holds?) what\b", "has the values that …"),
    (r"\b(made|makes?) it so\b", "causes it"),
    (r"\bwhich (of \w+( \w+)? )?is which\b", "how they correspond"),
    (r"\bat work\b", "is running"),
    (r"\bsays? nothing (of|about)\b", "has no entry for, does not show"),
    (r"\bof others\b", "of other users, of the remaining graphs"),
    (r"\bbut for\b", "except"),
]
_PROSE = re.compile(r"[A-Za-z’']{2,}[,;:]? ([A-Za-z`]|\{…\})|\{…\} [a-z]{2,}")
_SQL = "SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ATTACH|WITH|BEGIN|ALTER|DROP"
_NOT_PROSE = re.compile(rf"^\s*({_SQL})\b|\(\?|\\[bsdw]|^#include")
_CODE_WORDS = "import|from|def|class|return|if|for|extern|template|static|void|@"
_CODE = re.compile(rf"^\s*({_CODE_WORDS})\b.*$|[;{{]\s*$", re.MULTILINE)
_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|`(?:[^`\\]|\\.)*`")
_CPP_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"")
_COMMENT = re.compile(r"^\s*(//|\*|/\*)|\s//\s")
_TAG = re.compile(r"<[^>]*>")
_SHOWN_DOCSTRINGS = "integrations/mcp/tools.py"  # descriptions of the tools

Found = tuple[Path, int, str]


def user_strings(rooms: Iterable[str] = ()) -> Iterator[Found]:
    wanted = set(rooms)
    for path in [*sorted(PACKAGE.rglob("*")), ROOT / "README.md", *sorted((ROOT / DOCS).rglob("*.md"))]:
        is_ours = path.is_relative_to(PACKAGE)
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py") if is_ours else DOCS
        if not path.is_file() or (wanted and room not in wanted):
            continue
        if path.suffix == ".py":
            found = _in_python(path)
        elif path.suffix == ".js":
            found = _in_quotes(path, _QUOTED)
        elif path.suffix in (".html", ".md"):
            found = enumerate(_TAG.sub("", path.read_text(encoding="utf-8")).splitlines(), start=1)
        elif path.suffix in (".cpp", ".h"):
            found = _in_quotes(path, _CPP_QUOTED)
        else:
            continue
        yield from ((path, line, text) for line, text in found if is_prose(text))


def is_prose(text: str) -> bool:
    if not _PROSE.search(text) or _NOT_PROSE.search(text):
        return False
    return len(_CODE.findall(text)) * 3 < text.count("\n") + 1 or "\n" not in text


def _in_python(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    shows_docstrings = path.as_posix().endswith(_SHOWN_DOCSTRINGS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            is_shown = shows_docstrings and isinstance(node, ast.AsyncFunctionDef) and node.name[0] != "_"
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and not is_shown:
                skipped.add(id(first.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}  # not strings inside of {…}
            skipped |= {id(part.format_spec) for part in node.values if isinstance(part, ast.FormattedValue)}
            if id(node) in skipped:  # a format
                skipped |= {id(part) for part in ast.walk(node)}
                continue
            yield node.lineno, "".join(_part(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "{…}"


def _in_quotes(path: Path, quoted: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not _COMMENT.match(line):
            for found in quoted.findall(_COMMENT.split(line)[0]):
                yield number, re.sub(r"\$\{[^}]*\}", "{…}", found[1:-1])


def banned(strings: Iterable[Found]) -> Iterator[tuple[Found, str, str]]:
    """Each string with banned wording: the string, the wording, and what to write instead."""
    for found in strings:
        for pattern, instead in BANNED:
            if hit := re.search(pattern, found[2]):
                yield found, hit[0], instead


def main() -> int:
    rooms = [word for word in sys.argv[1:] if not word.startswith("-")]
    strings = user_strings(rooms)
    if "--check" not in sys.argv:
        for path, line, text in strings:
            print(f"{path.relative_to(ROOT)}:{line}: {text!r}")
        return 0
    wrong = list(banned(strings))
    for (path, line, text), hit, instead in wrong:
        print(f"{path.relative_to(ROOT)}:{line}: {hit!r} in {text!r:.300} (better: {instead})")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
