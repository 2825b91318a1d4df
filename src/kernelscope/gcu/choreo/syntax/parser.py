"""Text to syntax tree."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from . import tree
from .errors import ChoreoError
from .expressions import Cursor, plain
from .lexer import Lines, Piece, pieces, tokens
from .statements import block

_T = TypeVar("_T")


def parse(source: str, file: str = "") -> tree.File:
    """The tree of a `.co` file; `ChoreoError` with line and column when it is not one.

    Example:
        parse("__co__ void f(f32 [4] x) { }").functions[0].name  # "f"
    """
    lines = Lines(source)
    try:
        return tree.File(tuple(_item(source, lines, piece) for piece in pieces(source, lines)))
    except ChoreoError as error:
        raise error.within(source, file) from None


def _item(source: str, lines: Lines, piece: Piece) -> tree.HostCode | tree.DeviceCode | tree.Function:
    if piece.kind != "__co__":
        start, end = (piece.start, piece.end) if piece.kind == "host" else (piece.body, piece.end - 1)
        text = source[start:end]
        span = lines.span(start + len(text) - len(text.lstrip()))
        kind = tree.HostCode if piece.kind == "host" else tree.DeviceCode
        return kind(text.strip(), span=span)
    return _settled(_function(Cursor(tokens(source, lines, piece.start, piece.end))))


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
    if word.text not in ("auto", "void", *tree.SCALARS):
        raise ChoreoError(f"`{word.text}` cannot be returned; use auto, void or a type", word.span)
    dims = _dims(c) if c.sees("[") else None
    name = c.name("the function's name")
    c.expect("(")
    parameters = c.separated(_parameter, ")")
    body = block(c)
    return tree.Function(word.text, name.text, tuple(parameters), body, dims, span=start)


def _parameter(c: Cursor) -> tree.Parameter:
    is_global = c.take("global")
    word = c.name("a parameter's type")
    if word.text not in tree.SCALARS:
        raise ChoreoError(f"unknown type `{word.text}`; use one of {', '.join(tree.SCALARS)}", word.span)
    dims = None
    if c.sees("["):
        if word.text not in tree.ELEMENTS:
            raise ChoreoError(f"`{word.text}` cannot be an element type; use f32, s32, …", word.span)
        dims = _dims(c)
    name = c.name("the parameter's name")
    return tree.Parameter(word.text, name.text, dims, is_global, span=name.span)


def _dims(c: Cursor) -> tuple[int | str, ...]:
    c.expect("[")
    return tuple(c.separated(_dim, "]"))


def _dim(c: Cursor) -> int | str:
    token = c.next()
    if token.kind == "int":
        return int(token.text, 0)
    if token.kind == "name" or token.text == "?":
        return token.text
    raise ChoreoError(f"a dimension is a number, a symbol or ?, not `{token.text}`", token.span)
