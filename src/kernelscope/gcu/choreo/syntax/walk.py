"""Going through a tree: children, the names that are read and written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from . import tree
from .errors import ChoreoError


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
            case tree.Assign() | tree.Range() | tree.Matrix():
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


def is_atomic(e: Any) -> bool:
    """Whether it is a builtin that changes its first argument, an element."""
    return isinstance(e, tree.Builtin) and e.name.startswith("__atomic_") and bool(e.args)


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
            case tree.Matrix(action="store"):
                found |= roots(each.operands[0])
            case tree.Builtin() if is_atomic(each):
                found |= roots(each.args[0])
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
            case tree.Matrix(is_new=True):
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
            case tree.Matrix(action="load"):
                found |= roots(each.operands[0])
    return found


def always_returns(body: tree.Block) -> bool:
    """Whether control never comes to the end of a block."""
    return any(
        isinstance(s, tree.Return)
        or (isinstance(s, tree.If) and bool(s.other) and always_returns(s.then) and always_returns(s.other))
        for s in body
    )


def with_values(dims: Any, before: tree.Block) -> Any:
    """Expressions in which each name of a value that stands before them is that value."""
    for each in reversed(before):
        match each:
            case tree.Assign(op="=", value=tree.Dma(kind="copy", source=tree.Expr() as value)):
                dims = _replaced(dims, each.name, value)  # which has the same shape
            case tree.Assign(op="=", value=tree.Expr() as value) if not isinstance(value, tree.Dma):
                dims = _replaced(dims, each.name, value)
            case tree.DeclareScalar(is_mutable=False, init=tree.Expr() as value):
                dims = _replaced(dims, each.name, value)
            case tree.DeclareSpan():
                dims = _replaced(dims, each.name, each.dims)
    for each in nodes(dims):
        if isinstance(each, tree.Name) and each.id in declared(before):
            message = (
                f"the result is made before the function runs, and `{each.id}` of its shape while it runs; "
                "write its size in numbers, or in dimensions of the parameters"
            )
            raise ChoreoError(message, each.span)
    return dims


def _replaced(node: Any, name: str, value: tree.Expr) -> Any:
    if isinstance(node, tuple):
        return tuple(_replaced(item, name, value) for item in node)
    if isinstance(node, tree.Name):
        return value if node.id == name else node
    if not isinstance(node, tree.Expr):
        return node
    fields = [f.name for f in dataclasses.fields(node) if f.name != "span"]
    return dataclasses.replace(node, **{f: _replaced(getattr(node, f), name, value) for f in fields})
