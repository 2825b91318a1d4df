"""The preprocessor's lines: definitions, conditions, and what of a file they leave."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ChoreoError, Span
from .lexer import Lines, Token, tokens
from .macros import Macro, Macros, defined, expand

_WORDS = "define|undef|if|ifdef|ifndef|elif|elifdef|elifndef|else|endif|include|pragma|error|warning|line"
_DIRECTIVE = re.compile(rf"[ \t]*#[ \t]*({_WORDS})\b((?:[^\n\\]|\\.|\\\n)*)", re.DOTALL)
# What a line that looks like a directive may be hidden in.
_HIDING = re.compile(
    r'/\*.*?\*/|//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL
)
_DEEPEST = 16  # files that include files
_BINARY = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One directive of the part that counts."""

    start: int
    end: int
    word: str
    text: str


@dataclass
class Prepared:
    """A source, and what its directives make of it."""

    visible: str  # the source, blank where a directive is or a condition does not hold
    lines: list[Line]
    definitions: list[tuple[int, str, Macro | None]]  # from which offset on; None: undefined

    def between(self, start: int, end: int) -> list[Line]:
        return [line for line in self.lines if start <= line.start < end]

    def macros_at(self, offset: int) -> Macros:
        known: Macros = {}
        for start, name, macro in self.definitions:
            if start > offset:
                break
            if macro is None:
                known.pop(name, None)
            else:
                known[name] = macro
        return known

    def expanded(self, found: list[Token], start: int, end: int) -> list[Token]:
        """The tokens of a stretch, with the macros that hold where each of them stands."""
        changes = sorted({s for s, _, _ in self.definitions if start < s < end})
        out: list[Token] = []
        for low, high in zip([start, *changes], [*changes, end + 1], strict=True):
            part = [t for t in found if low <= t.start < high]
            out += expand(part, self.macros_at(low))
        return out


@dataclass
class _Group:
    span: Span
    was_active: bool  # around it
    taken: bool  # a branch that holds has been seen
    is_active: bool
    seen_else: bool = False


@dataclass
class _State:
    groups: list[_Group] = field(default_factory=list)
    macros: Macros = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        return all(g.is_active for g in self.groups)


def prepare(source: str, file: str = "") -> Prepared:
    """Read the directives of a file; `ChoreoError` where one is wrong."""
    found = Prepared(source, [], [])
    if "#" not in source:
        return found
    state, lines = _State(), Lines(source)
    blank: list[tuple[int, int]] = []
    dead_from: int | None = None
    for start, end, word, text in _directives(source):
        span = lines.span(source.index("#", start))
        was_active = state.is_active
        if word in ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"):
            _condition(state, word, text, span)
        elif was_active:
            found.lines.append(Line(start, end, word, source[start:end].strip()))
            _act(state, found, word, text, span, start, file, 0)
        blank.append((start, end))
        if was_active and not state.is_active:
            dead_from = end
        elif not was_active and state.is_active and dead_from is not None:
            blank.append((dead_from, start))
            dead_from = None
    if state.groups:
        raise ChoreoError("this condition has no #endif", state.groups[-1].span)
    found.visible = _blanked(source, blank)
    return found


def _directives(source: str) -> list[tuple[int, int, str, str]]:
    found = []
    at = 0
    while at < len(source):
        match = _DIRECTIVE.match(source, at)
        if match is not None:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", match.group(2).replace("\\\n", " "), flags=re.DOTALL)
            found.append((at, match.end(), match.group(1), text.strip()))
            at = match.end() + 1
            continue
        # To the next line, over comments and strings that span several.
        while at < len(source) and source[at] != "\n":
            hidden = _HIDING.match(source, at)
            at = hidden.end() if hidden is not None else at + 1
        at += 1
    return found


def _blanked(source: str, parts: list[tuple[int, int]]) -> str:
    out, at = [], 0
    for start, end in sorted(parts):
        if end <= at:
            continue
        start = max(start, at)
        out += [source[at:start], re.sub(r"[^\n]", " ", source[start:end])]
        at = end
    return "".join([*out, source[at:]])


def _condition(state: _State, word: str, text: str, span: Span) -> None:
    if word in ("if", "ifdef", "ifndef"):
        around = state.is_active
        holds = around and _holds(word, text, span, state.macros)
        state.groups.append(_Group(span, around, holds, holds))
        return
    if not state.groups:
        raise ChoreoError(f"#{word} without #if", span)
    group = state.groups[-1]
    if word == "endif":
        state.groups.pop()
        return
    if group.seen_else:
        raise ChoreoError(f"#{word} after #else", span)
    group.seen_else = word == "else"
    may = group.was_active and not group.taken
    group.is_active = may and (word == "else" or _holds(word.removeprefix("el"), text, span, state.macros))
    group.taken = group.taken or group.is_active


def _holds(word: str, text: str, span: Span, macros: Macros) -> bool:
    if word == "if":
        return _Condition(text, span, macros).value() != 0
    if not text.isidentifier():
        raise ChoreoError(f"#{word} needs one name, not `{text}`", span)
    return (text in macros) == (word == "ifdef")


def _act(
    state: _State, found: Prepared, word: str, text: str, span: Span, at: int, file: str, depth: int
) -> None:
    match word:
        case "define":
            macro = defined(text, span)
            state.macros[macro.name] = macro
            found.definitions.append((at, macro.name, macro))
        case "undef":
            state.macros.pop(text, None)
            found.definitions.append((at, text, None))
        case "error":
            raise ChoreoError(f"#error {text}", span)
        case "include" if text.startswith('"') and file:
            _include(state, found, Path(file).parent / text.strip('"'), span, at, depth)


def _include(state: _State, found: Prepared, path: Path, span: Span, at: int, depth: int) -> None:
    """The macros of a header beside the file; its C++ is the C++ compiler's."""
    if depth > _DEEPEST:
        raise ChoreoError(f"{path.name} includes itself", span)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return  # the C++ compiler says what it thinks of it
    outer, state.groups = state.groups, []
    for _, _, word, text in _directives(source):
        if word in ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"):
            _condition(state, word, text, span)
        elif state.is_active:
            _act(state, found, word, text, span, at, str(path), depth + 1)
    state.groups = outer


class _Condition:
    """The number that an #if has."""

    def __init__(self, text: str, span: Span, macros: Macros) -> None:
        self._span, self._text = span, text
        known = re.sub(
            r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", lambda m: str(int((m[1] or m[2]) in macros)), text
        )
        try:
            given = tokens(known, Lines(known), 0, len(known))
        except ChoreoError as error:
            raise self._wrong(error.message) from None
        self._tokens = expand([t for t in given if t.kind != "comment"], macros)
        self._at = 0

    def _wrong(self, why: str) -> ChoreoError:
        return ChoreoError(f"#if {self._text}: {why}", self._span)

    def value(self) -> int:
        found = self._ternary()
        if self._tokens[self._at].kind != "end":
            raise self._wrong(f"unexpected `{self._tokens[self._at].text}`")
        return found

    def _takes(self, *texts: str) -> str:
        token = self._tokens[self._at]
        if token.kind == "mark" and token.text in texts:
            self._at += 1
            return token.text
        return ""

    def _ternary(self) -> int:
        condition = self._level(0)
        if not self._takes("?"):
            return condition
        then = self._ternary()
        if not self._takes(":"):
            raise self._wrong("`?` without `:`")
        other = self._ternary()
        return then if condition else other

    def _level(self, level: int) -> int:
        if level == len(_BINARY):
            return self._unary()
        left = self._level(level + 1)
        while op := self._takes(*_BINARY[level]):
            left = self._binary(op, left, self._level(level + 1))
        return left

    def _binary(self, op: str, a: int, b: int) -> int:
        if op in ("/", "%"):
            if b == 0:
                raise self._wrong("division by zero")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if op == "/" else a - b * quotient
        if op in ("<<", ">>") and not 0 <= b < 64:
            raise self._wrong(f"a shift by {b}")
        values = {
            "||": int(bool(a or b)), "&&": int(bool(a and b)), "|": a | b, "^": a ^ b, "&": a & b,
            "==": int(a == b), "!=": int(a != b), "<": int(a < b), ">": int(a > b), "<=": int(a <= b),
            ">=": int(a >= b), "+": a + b, "-": a - b, "*": a * b,
        }  # fmt: skip
        if op in values:
            return values[op]
        return a << b if op == "<<" else a >> b

    def _unary(self) -> int:
        op = self._takes("!", "-", "+", "~", "(")
        if op == "(":
            inner = self._ternary()
            if not self._takes(")"):
                raise self._wrong("a parenthesis is not closed")
            return inner
        if op:
            value = self._unary()
            return {"!": int(not value), "-": -value, "+": value, "~": ~value}[op]
        token = self._tokens[self._at]
        self._at += 1
        if token.kind == "int":
            return int(token.text.rstrip("uUlL"), 0)
        if token.kind == "name":
            return int(token.text == "true")  # any other name that is left is 0, as in C
        raise self._wrong("expected a number" if token.kind == "end" else f"unexpected `{token.text}`")
