"""Text to tokens, and where the Choreo functions of a file begin and end."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from .errors import ChoreoError, Span

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|\d+[eE][+-]?\d+[fF]?|\d+[fF]\b)
      | (?P<int>(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]{0,3})
      | (?P<text>"(?:[^"\\\n]|\\.)*"|R"(?P<fence>\w*)\(.*?\)(?P=fence)")
      | (?P<name>[A-Za-z_]\w*)
      | (?P<mark>=>|<<=|>>=|\#[-+*/%]|\+\+|--|[-+*/%&|^]=|==|!=|<=|>=|<<|>>|&&|\|\||
          [-+*/%&^|~!<>=?:;,.(){}\[\]\#])""",
    re.VERBOSE | re.DOTALL,
)
# C++ between functions: strings, characters and comments hide braces and keywords.
_HOST = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\b__cok?__\b|[{}]',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # "name", "int", "float", "text", "mark", "comment", "end"
    text: str
    span: Span
    start: int
    starts_line: bool = False


class Lines:
    """Offsets to spans."""

    def __init__(self, source: str) -> None:
        self._starts = [0, *(i + 1 for i, c in enumerate(source) if c == "\n")]

    def span(self, offset: int, length: int = 1) -> Span:
        line = bisect_right(self._starts, offset)
        return Span(line, offset - self._starts[line - 1] + 1, max(1, length))


def tokens(source: str, lines: Lines, start: int, end: int) -> list[Token]:
    found: list[Token] = []
    at, fresh = start, True
    while at < end:
        match = _TOKEN.match(source, at, end)
        if match is None or (source.startswith("/*", at) and match.lastgroup == "mark"):
            raise ChoreoError(_unexpected(source[at : at + 10].split("\n")[0]), lines.span(at))
        kind, text = _kind(match), match.group()
        if kind == "space":
            fresh = fresh or "\n" in text
        else:
            found.append(Token(kind, text, lines.span(at, len(text.split("\n")[0])), at, fresh))
            fresh = False
        at = match.end()
    found.append(Token("end", "the end of the function", lines.span(max(start, end - 1)), end, True))
    return found


def _unexpected(text: str) -> str:
    if text[0] == '"':
        return 'this string is never closed; write a `"` at its end, on the same line'
    if text[0] == "'":
        return 'characters and strings are written between double quotes: "a"'
    if text.startswith("/*"):
        return "this comment is never closed; write `*/` at its end"
    return f"unexpected text {text!r}"


def _kind(match: re.Match[str]) -> str:
    """The outermost group that matched; the fence of a raw string lies inside one."""
    return "text" if match.lastgroup == "fence" else str(match.lastgroup)


@dataclass(frozen=True, slots=True)
class Piece:
    kind: str  # "host", "__cok__", "__co__"
    start: int
    end: int
    body: int = 0  # of __cok__: after its brace


def pieces(source: str, lines: Lines, whole: str = "") -> list[Piece]:
    """Cut a file into host C++, `__cok__` blocks and `__co__` functions.

    `source` is what the preprocessor leaves visible of `whole`.
    """
    whole = whole or source
    found: list[Piece] = []
    host, at, depth = 0, 0, 0
    while match := _HOST.search(source, at):
        text, at = match.group(), match.end()
        if text == "{":
            depth += 1
        elif text == "}":
            depth -= 1
        elif text in ("__co__", "__cok__") and depth == 0:
            if whole[host : match.start()].strip():
                found.append(Piece("host", host, match.start()))
            opening = _first_brace(source, match.end(), lines, match.start(), text)
            end = _closing(source, opening, lines)
            begins = opening + 1 if text == "__cok__" else match.start()
            found.append(Piece(text, match.start(), end, begins))
            host = at = end
    if whole[host:].strip():
        found.append(Piece("host", host, len(source)))
    return found


def _first_brace(source: str, at: int, lines: Lines, word: int, text: str) -> int:
    while match := _HOST.search(source, at):
        if match.group() == "{":
            return match.start()
        if match.group() == "}":
            break
        at = match.end()
    raise ChoreoError(f"{text} without a body in braces", lines.span(word, len(text)))


def _closing(source: str, opening: int, lines: Lines) -> int:
    depth, at = 0, opening
    while match := _HOST.search(source, at):
        at = match.end()
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return at
    raise ChoreoError("this brace is never closed", lines.span(opening))
