"""Going through a tree: children, the names that are read and written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from . import tree


def children(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        yield from node
    elif dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            if field.name != "span":
                value = getattr(node, field.name)
                if isinstance(value, tuple):
                    yield from value
                elif dataclasses.is_dataclass(value):
                    yield value


def nodes(node: Any) -> Iterator[Any]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from nodes(child)


def names(node: Any) -> set[str]:
    """The names that an expression or a block mentions."""
    found: set[str] = set()
    for each in nodes(node):
        match each:
            case tree.Name():
                found.add(each.id)
            case tree.Assign() | tree.Range():
                found.add(each.name)
            case tree.Rotate():
                found.update(each.names)
            case tree.Swap():
                found.update((each.first, each.second))
            case tree.Dma():
                found.update(filter(None, [each.after]))
    return found


def root(data: tree.Expr) -> str:
    """The name that a chain like `f.data.chunkat(…)` starts from."""
    while not isinstance(data, tree.Name):
        inner = getattr(data, "of", None)
        if inner is None:
            return ""
        data = inner
    return data.id


def roots(data: tree.Expr) -> set[str]:
    """The names that data may start from: one, or each choice of a selection."""
    if isinstance(data, tree.Builtin) and data.name == "select":
        return {name for choice in data.args[1:] for name in roots(choice)}
    inner = getattr(data, "of", None)
    if inner is not None and not isinstance(data, tree.Name):
        return roots(inner)
    return {root(data)} - {""}


def handed(call: tree.Call | tree.CallValue) -> set[str]:
    """The roots of the data that a function gets and may write; an element is handed over by its value."""
    found: set[str] = set()
    for arg in call.args:
        if isinstance(arg, tree.Unary) and arg.op == "&":
            found |= roots(arg.operand)
        elif not isinstance(arg, tree.At):
            found |= roots(arg)
    return found


def written(node: Any) -> set[str]:
    """The roots of what is stored to, copied to, or handed to a kernel."""
    found: set[str] = set()
    for each in nodes(node):
        match each:
            case tree.Store():
                found |= roots(each.target.of)
            case tree.Dma() if isinstance(each.target, tree.Expr):
                found |= roots(each.target)
            case tree.Call() | tree.CallValue():
                found |= handed(each)
    return found - {""}


def has_parallel(block: tree.Block) -> bool:
    return any(isinstance(each, tree.Parallel) for each in nodes(block))


def declared(block: tree.Block) -> set[str]:
    """The names that the statements of one block declare, not looking into nested ones."""
    found: set[str] = set()
    for each in block:
        match each:
            case tree.DeclareBuffer() | tree.DeclareScalar() | tree.DeclareSpan() | tree.Assign():
                found.add(each.name)
    return found


def last(body: tree.Block) -> tree.Stmt | None:
    return next((s for s in reversed(body) if not isinstance(s, tree.Remark)), None)


def read(body: tree.Block) -> set[str]:
    """The roots of what is read: elements, and sources of copies."""
    found: set[str] = set()
    stored = {id(each.target) for each in nodes(body) if isinstance(each, tree.Store)}
    for each in nodes(body):
        match each:
            case tree.Store():
                if each.op != "=":
                    found |= roots(each.target.of)
            case tree.At() if id(each) not in stored:
                found |= roots(each.of)
            case tree.Return() if each.value is not None:
                found |= roots(each.value)
            case tree.Dma() if each.source is not None:
                found |= roots(each.source)
            case tree.Call() | tree.CallValue():
                found |= handed(each)
    return found
