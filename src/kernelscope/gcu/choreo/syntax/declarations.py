"""Parsing of declarations: buffers, arrays of buffers, events, scalars; the variables of loops."""

from __future__ import annotations

from . import tree
from .errors import ChoreoError, Span
from .expressions import Cursor, expression, listed
from .lexer import Token


def declaration(c: Cursor) -> list[tree.Stmt]:
    """`local f32 [4] a, b[2];`, `shared event e;`, `mutable int n = 0;`."""
    start = c.token.span
    scope = c.next().text if c.sees(*tree.SCOPES) else ""
    if c.take("event"):
        return _ended(c, [_event(c, scope, start), *_more(c, lambda: _event(c, scope, start))])
    if not scope and c.take("mdspan"):
        return _ended(c, [_span(c), *_more(c, lambda: _span(c))])
    is_mutable = c.take("mutable")
    if is_mutable and c.peek().text in ("=", "{"):
        return _ended(c, _scalars(c, "", is_mutable, start))
    word = type_word(c, "a type")
    if not c.sees("["):
        if scope not in ("", "local"):
            raise c.wrong(f"a {scope} buffer needs its shape in brackets")
        return _ended(c, _scalars(c, word.text, is_mutable or bool(scope), start))
    element = tree.AS_ELEMENT[word.text]
    c.expect("[")
    dims = listed(c, "]")

    def buffer() -> tree.Stmt:
        name = c.name("the buffer's name")
        counts = _counts(c)
        value = _braced(c) if c.sees("{") else expression(c) if c.take("=") else None
        return tree.DeclareBuffer(element, dims, name.text, scope, is_mutable, value, counts, span=start)

    return _ended(c, [buffer(), *_more(c, buffer)])


def _span(c: Cursor) -> tree.Stmt:
    name = c.name("the name of a span")
    c.expect("=")
    return tree.DeclareSpan(name.text, expression(c), span=name.span)


def type_word(c: Cursor, what: str) -> Token:
    """The name of a type, in its usual form."""
    word = c.name(what)
    text = tree.ALIASES.get(word.text, word.text)
    if text not in tree.SCALARS:
        raise ChoreoError(f"unknown type `{word.text}`; use one of {', '.join(tree.SCALARS)}", word.span)
    return Token(word.kind, text, word.span, word.start, word.starts_line)


def _more(c: Cursor, one: object) -> list[tree.Stmt]:
    found: list[tree.Stmt] = []
    while c.take(","):
        found.append(one())  # type: ignore[operator]
    return found


def _ended(c: Cursor, found: list[tree.Stmt]) -> list[tree.Stmt]:
    c.expect(";", "after a declaration")
    return found


def _event(c: Cursor, scope: str, start: Span) -> tree.Stmt:
    name = c.name("the event's name")
    return tree.DeclareEvent(name.text, scope, _counts(c), span=start)


def _counts(c: Cursor) -> tuple[tree.Expr, ...]:
    counts: list[tree.Expr] = []
    while c.take("["):
        counts.append(expression(c))
        c.expect("]")
    return tuple(counts)


def _braced(c: Cursor) -> tree.Expr:
    c.expect("{")
    value = expression(c)
    c.expect("}")
    return value


def _scalars(c: Cursor, kind: str, is_mutable: bool, start: Span) -> list[tree.Stmt]:
    def scalar() -> tree.Stmt:
        name = c.name("the variable's name")
        init = expression(c) if c.take("=") else _braced(c) if c.sees("{") else None
        return tree.DeclareScalar(kind, name.text, init, is_mutable, span=start)

    return [scalar(), *_more(c, scalar)]


# -- variables of loops ----------------------------------------------------------------------------------


def names_of(c: Cursor, what: str) -> tuple[bool, tuple[str, ...]]:
    """One name, or several in braces; and whether there were braces."""
    braced = c.take("{")
    if braced:
        return True, tuple(c.separated(lambda c: c.name(f"the name of {what}").text, "}"))
    return False, (c.name(f"the name of {what}").text,)


def bind(c: Cursor) -> tree.Bind:
    start, whole = c.token.span, ""
    if c.token.kind == "name" and c.peek().text == "=":
        whole = c.next().text
        c.next()
    braced, names = names_of(c, "a bounded variable")
    c.expect("in")
    return tree.Bind(names, expression(c), whole, braced, span=start)


def tie(c: Cursor) -> tuple[str, str]:
    first = c.name("a bounded variable").text
    for mark in ("<", "-", ">"):
        c.expect(mark, "of <-> between two bounded variables")
    return first, c.name("a bounded variable").text


def hint(c: Cursor) -> tree.Builtin:
    """How the hardware should run a loop, which changes no result."""
    word = c.name("vectorize or unroll")
    if word.text not in ("vectorize", "unroll"):
        raise ChoreoError(f"`{word.text}` is not a directive for loops; use vectorize or unroll", word.span)
    return tree.Builtin(word.text, listed(c, ")") if c.take("(") else (), span=word.span)


def range_of(c: Cursor) -> tree.Bind | tree.Range:
    if c.sees("{") or c.peek().text in ("in", "="):
        return bind(c)
    name = c.name("a bounded variable")
    if c.sees("of"):
        raise c.wrong("expected `in`")
    if not c.take("("):
        return tree.Range(name.text, span=name.span)
    low = None if c.sees(":") else expression(c)
    c.expect(":", "between the limits of a range")
    high = None if c.sees(":", ")") else expression(c)
    step = expression(c) if c.take(":") and not c.sees(")") else None
    c.expect(")")
    return tree.Range(name.text, low, high, step, span=name.span)
