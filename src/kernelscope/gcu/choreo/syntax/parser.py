"""Text to syntax tree."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from . import tree
from .declarations import type_word
from .directives import Prepared, prepare
from .errors import ChoreoError
from .expressions import Cursor, expression, integer, plain
from .lexer import Lines, Piece, pieces, tokens
from .statements import block

_T = TypeVar("_T")


def parse(source: str, file: str = "", *, as_written: bool = False) -> tree.File:
    """The tree of a `.co` file; `ChoreoError` with line and column when it is not one.

    Macros are replaced and conditions decided first. With `as_written`, a function that the
    preprocessor has a part in stays as it is, as text.

    Example:
        parse("__co__ void f(f32 [4] x) { }").functions[0].name  # "f"
    """
    lines = Lines(source)
    try:
        prepared = prepare(source, file)
        found: list[tree.HostCode | tree.DeviceCode | tree.Function] = []
        for piece in pieces(prepared.visible, lines, source):
            try:
                found += _items(source, prepared, lines, piece, as_written)
            except RecursionError:
                raise ChoreoError("this function is nested too deeply", lines.span(piece.start)) from None
        return tree.File(tuple(found))
    except ChoreoError as error:
        raise error.within(source, file) from None


def _items(
    source: str, prepared: Prepared, lines: Lines, piece: Piece, as_written: bool
) -> list[tree.HostCode | tree.DeviceCode | tree.Function]:
    if piece.kind != "__co__":
        start, end = (piece.start, piece.end) if piece.kind == "host" else (piece.body, piece.end - 1)
        text = source[start:end]
        span = lines.span(start + len(text) - len(text.lstrip()))
        kind = tree.HostCode if piece.kind == "host" else tree.DeviceCode
        return [kind(text.strip(), span=span)]
    plain_tokens = tokens(prepared.visible, lines, piece.start, piece.end)
    expanded = prepared.expanded(plain_tokens, piece.start, piece.end)
    inside = prepared.between(piece.start, piece.end)
    changed = (
        expanded != plain_tokens
        or prepared.visible[piece.start : piece.end] != source[piece.start : piece.end]
    )
    function = _settled(_function(Cursor(expanded)))
    if as_written and changed:
        return [tree.HostCode(source[piece.start : piece.end], span=function.span)]
    # The C++ below the function sees the macros that were defined in it.
    kept = [line for line in inside if line.word in ("define", "undef")]
    after = [tree.HostCode(line.text, span=lines.span(line.start)) for line in kept]
    return [function, *after]


def _settled(node: _T) -> _T:
    """A number in parentheses that is not an extent is a plain number."""
    if isinstance(node, tuple):
        return tuple(_settled(item) for item in node)  # type: ignore[return-value]
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return node
    if isinstance(node, tree.Int):
        return plain(node)  # type: ignore[return-value]
    changed: dict[str, Any] = {}
    for each in dataclasses.fields(node):
        value = getattr(node, each.name)
        settled = _settled(value) if each.name != "span" else value
        if settled is not value:
            changed[each.name] = settled
    return dataclasses.replace(node, **changed) if changed else node


def _function(c: Cursor) -> tree.Function:
    start = c.expect("__co__").span
    word = c.name("what the function returns: auto, void, a scalar or an element type")
    returns = tree.ALIASES.get(word.text, word.text)
    if returns not in ("auto", "void", *tree.SCALARS):
        raise ChoreoError(f"`{word.text}` cannot be returned; use auto, void or a type", word.span)
    dims = _dims(c) if c.sees("[", "mdspan") else None
    if dims is not None:
        returns = tree.AS_ELEMENT.get(returns, returns)
    name = c.name("the function's name")
    c.expect("(")
    parameters = c.separated(_parameter, ")")
    body = block(c)
    return tree.Function(returns, name.text, tuple(parameters), body, dims, span=start)


def _parameter(c: Cursor) -> tree.Parameter:
    is_global = c.take("global")
    word = type_word(c, "a parameter's type")
    dims, kind = None, word.text
    if c.sees("[", "mdspan"):
        dims, kind = _dims(c), tree.AS_ELEMENT[word.text]
        c.take("&")  # data is never copied when it is handed over
    name = c.name("the parameter's name")
    return tree.Parameter(kind, name.text, dims, is_global, span=name.span)


def _dims(c: Cursor) -> tuple[int | str, ...]:
    if c.take("mdspan"):  # the rank alone
        c.expect("<")
        rank = c.next()
        c.expect(">")
        if rank.kind != "int" or integer(rank) < 1:
            raise ChoreoError(f"mdspan<…> needs a rank of at least 1, not `{rank.text}`", rank.span)
        return ("?",) * integer(rank)
    c.expect("[")
    return tuple(c.separated(_dim, "]"))


def _dim(c: Cursor) -> int | str:
    token = c.token
    if (token.kind == "name" or token.text == "?") and c.peek().text in (",", "]"):
        return c.next().text
    value = _constant(expression(c)) if token.kind != "end" else None
    if value is None:
        raise ChoreoError(f"a dimension is a number, a symbol or ?, not `{token.text}`", token.span)
    return value


def _constant(e: tree.Expr) -> int | None:
    """The value of an expression of numbers, as a macro may leave one."""
    match e:
        case tree.Int():
            return e.value
        case tree.Binary(op="+" | "-" | "*" | "/" | "%"):
            a, b = _constant(e.left), _constant(e.right)
            if a is None or b is None or (e.op in ("/", "%") and b == 0):
                return None
            return {"+": a + b, "-": a - b, "*": a * b, "/": a // (b or 1), "%": a % (b or 1)}[e.op]
        case tree.Builtin(name="cdiv", args=(first, second)):
            a, b = _constant(first), _constant(second)
            return None if a is None or not b else -(-a // b)
    return None
