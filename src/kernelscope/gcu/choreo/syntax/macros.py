"""Macros: what `#define` names stand for, and their expansion inside Choreo functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .errors import ChoreoError, Span
from .lexer import Lines, Token, tokens

_DEEPEST = 200  # macros within macros


@dataclass
class Macro:
    """One definition; its body is only read when it is used."""

    name: str
    body: str
    parameters: tuple[str, ...] | None = None  # None: without parentheses
    is_variadic: bool = False
    _tokens: list[Token] | None = field(default=None, repr=False)

    def tokens(self, span: Span) -> list[Token]:
        if self._tokens is None:
            try:
                self._tokens = [t for t in tokens(self.body, Lines(self.body), 0, len(self.body)) if t.kind]
            except ChoreoError as error:
                raise ChoreoError(f"macro `{self.name}`: {error.message}", span) from None
        return [replace(t, span=span) for t in self._tokens if t.kind not in ("end", "comment")]


_DEFINE = re.compile(r"\s*([A-Za-z_]\w*)(\(([^)]*)\))?(.*)", re.DOTALL)


def defined(text: str, span: Span) -> Macro:
    """The macro that `#define TEXT` defines."""
    match = _DEFINE.match(text)
    if match is None:
        raise ChoreoError("#define needs a name", span)
    name, parenthesised, inside, body = match.group(1, 2, 3, 4)
    if parenthesised is None:
        return Macro(name, body.strip())
    given = [p.strip() for p in inside.split(",")] if inside.strip() else []
    is_variadic = bool(given) and given[-1] == "..."
    if is_variadic:
        given[-1] = "__VA_ARGS__"
    wrong = next((p for p in given if not p.isidentifier()), None)
    if wrong is not None:
        raise ChoreoError(f"macro `{name}`: `{wrong}` is not a parameter name", span)
    return Macro(name, body.strip(), tuple(given), is_variadic)


Macros = dict[str, Macro]


def expand(
    found: Sequence[Token], macros: Macros, hidden: frozenset[str] = frozenset(), depth: int = 0
) -> list[Token]:
    """Tokens with every macro replaced; what comes from a macro stands where the macro was used."""
    if depth > _DEEPEST:
        raise ChoreoError("macros are nested too deeply", found[0].span)
    out: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        at += 1
        macro = macros.get(token.text) if token.kind == "name" and token.text not in hidden else None
        if macro is None:
            out.append(token)
            continue
        body = macro.tokens(token.span)
        if macro.parameters is not None:
            opening = _next_code(found, at)
            if opening is None or found[opening].text != "(":
                out.append(token)  # a name like any other
                continue
            given, at = _arguments(found, opening, token, macro)
            body = _substituted(body, macro, given, macros, hidden, depth)
        out += expand(_pasted(body), macros, hidden | {macro.name}, depth + 1)
    return out


def _next_code(found: Sequence[Token], at: int) -> int | None:
    while at < len(found) and found[at].kind == "comment":
        at += 1
    return at if at < len(found) else None


def _arguments(
    found: Sequence[Token], opening: int, use: Token, macro: Macro
) -> tuple[dict[str, list[Token]], int]:
    parts: list[list[Token]] = [[]]
    depth, at = 0, opening
    while True:
        if at >= len(found) or found[at].kind == "end":
            raise ChoreoError(f"macro `{macro.name}`: its parenthesis is never closed", use.span)
        token = found[at]
        at += 1
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "mark" else 0
        if depth == 0:
            break
        if depth == 1 and token.kind == "mark" and token.text in ("(", ","):
            rest = macro.is_variadic and len(parts) == len(macro.parameters or ())
            if token.text == "," and not rest:
                parts.append([])
                continue
            if token.text == "(" and at == opening + 1:
                continue
        if token.kind != "comment":
            parts[-1].append(token)
    names = macro.parameters or ()
    if not names and parts == [[]]:
        parts = []
    if macro.is_variadic and len(parts) == len(names) - 1:
        parts.append([])
    if len(parts) != len(names):
        raise ChoreoError(f"macro `{macro.name}` takes {len(names)} arguments, not {len(parts)}", use.span)
    return dict(zip(names, parts, strict=True)), at


def _substituted(
    body: list[Token],
    macro: Macro,
    given: dict[str, list[Token]],
    macros: Macros,
    hidden: frozenset[str],
    depth: int,
) -> list[Token]:
    out: list[Token] = []
    at = 0
    while at < len(body):
        token = body[at]
        after = body[at + 1] if at + 1 < len(body) else None
        pastes = after is not None and _is_hash(after) and at + 2 < len(body) and _is_hash(body[at + 2])
        pasted = len(out) >= 2 and _is_hash(out[-1]) and _is_hash(out[-2])
        second = bool(out) and _is_hash(out[-1])
        if _is_hash(token) and after is not None and after.text in given and not second:
            text = " ".join(t.text for t in given[after.text])
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            out.append(Token("text", f'"{quoted}"', token.span, token.start))
            at += 2
            continue
        if token.kind == "name" and token.text in given:
            part = given[token.text]
            out += part if pastes or pasted else expand(part, macros, hidden, depth + 1)
        else:
            out.append(token)
        at += 1
    return out


def _is_hash(token: Token) -> bool:
    return token.kind == "mark" and token.text == "#"


def _pasted(body: list[Token]) -> list[Token]:
    """`a ## b` as one token."""
    out: list[Token] = []
    at = 0
    while at < len(body):
        both = at + 2 < len(body) and _is_hash(body[at]) and _is_hash(body[at + 1])
        if both and out:
            text = out[-1].text + body[at + 2].text
            made = tokens(text, Lines(text), 0, len(text))
            if len(made) != 2:  # one token and the end
                raise ChoreoError(f"## makes `{text}`, which is not a single token", out[-1].span)
            out[-1] = replace(made[0], span=out[-1].span, start=out[-1].start)
            at += 3
            continue
        out.append(body[at])
        at += 1
    return out
