"""Parsing of transfers (`dma`, `tma`) and of products of small matrices (`mma`)."""

from __future__ import annotations

from . import tree
from .errors import ChoreoError, Span
from .expressions import Cursor, expression, postfix, settings

_ORDERS = ("row", "col")


def dma(c: Cursor) -> tree.Dma:
    """`dma.copy.async x.chunkat(p) => local after f`, `tma.copy.async<e>.swiz<128> x => y`."""
    word = c.next()
    start, engine = word.span, word.text
    c.expect(".", f"and an operation after {engine}")
    known = ("copy", "any") if engine == "tma" else ("copy", "pad", "transp", "any")
    offered = f"{', '.join(known[:-1])} or any"
    kind = c.name(offered)
    if kind.text not in known:
        raise ChoreoError(f"there is no {engine}.{kind.text}; use {offered}", kind.span)
    if kind.text == "any":
        return tree.Dma("any", span=start)
    # `.async`, `.swiz<n>` and the settings, in any order
    given: tuple[tree.Expr, ...] = ()
    is_async, swizzle, event = False, None, None
    while True:
        if kind.text != "copy" and c.sees("<") and not given:
            given = settings(c)
        elif c.take("."):
            part = c.name("async or swiz")
            if part.text == "async" and not is_async:
                is_async = True
                event = _only(c) if kind.text == "copy" and c.sees("<") else None
            elif part.text in ("swiz", "swizzle") and swizzle is None:
                swizzle = _only(c)
            else:
                raise ChoreoError(f"`{part.text}` cannot stand here, after {engine}.{kind.text}", part.span)
        else:
            break
    source = postfix(c)
    c.expect("=>", f"between source and target of a {engine.upper()}")
    scope = c.sees(*tree.SCOPES)
    target: tree.Expr | str = c.next().text if scope else postfix(c)
    after = c.name("the name of a future").text if c.take("after") else ""
    return tree.Dma(kind.text, source, target, given, is_async, after, engine, swizzle, event, span=start)


def _only(c: Cursor) -> tree.Expr:
    span = c.token.span
    given = settings(c)
    if len(given) != 1:
        raise ChoreoError("one setting is expected between < and >", span)
    return given[0]


def matrix(c: Cursor, name: str = "", start: Span | None = None) -> tree.Stmt:
    """`m = mma.fill 0.0f`, `mma.row.col m, a, b`, `mma.store m, x`."""
    start = start or c.token.span
    c.expect("mma")
    c.expect(".", "and an operation after mma")
    kind = c.name("fill, load, store, row or col")
    if kind.text == "commit" and not name:  # of the hardware's queue; here a product is complete
        c.expect(";")
        return tree.Matrix("commit", "", (), span=start)
    words: list[str] = []
    swizzle = None
    if kind.text in _ORDERS:
        words.append(kind.text)
    while c.take("."):
        word = c.name("a word")
        if word.text in ("swiz", "swizzle"):
            swizzle = _only(c)
        else:
            words.append(word.text)
    action = "product" if kind.text in _ORDERS else kind.text
    allowed: dict[str, list[list[str]]] = {
        "fill": [[], *([word] for word in tree.ELEMENTS)],
        "load": [[]],
        "store": [[], ["transp"]],
        "product": [[a, b] for a in _ORDERS for b in _ORDERS],
    }
    if words not in allowed.get(action, []):
        shown = ".".join(["mma", kind.text, *(words[1:] if action == "product" else words)])
        message = f"`{shown}` is only known to the hardware; use mma.fill, load, store, row.col or row.row"
        raise ChoreoError(message, kind.span)
    is_new = bool(name)
    if not is_new:
        name = c.name("the name of a matrix").text
        c.expect(",")
    if is_new and action in ("store", "product"):
        raise ChoreoError(f"mma.{kind.text} has no result; write it as a statement", kind.span)
    operands = [expression(c) if action == "fill" else postfix(c)]
    if action == "product":
        c.expect(",")
        operands.append(postfix(c))
    c.expect(";", "after mma")
    return tree.Matrix(action, name, tuple(operands), tuple(words), is_new, swizzle, span=start)
