"""Copies that are under way: nothing uses the tile that one fills, or writes to what one reads.

Only what is certain from the text counts: a whole buffer, the tile that the copy itself names, elements of
it, numbers that lie in it, or a loop over every element. Other uses may concern another tile of the buffer,
as in double buffering; `kernelscope choreo run --races` sees those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.walk import children, is_atomic, names, root


@dataclass(frozen=True)
class Use:
    """Data that a statement reads or writes."""

    data: tree.Expr
    writes: bool
    is_sure: bool = True  # not inside a condition


@dataclass
class Names:
    """What names stand for at one place of a function."""

    tiles: dict[str, tree.Expr] = field(default_factory=dict)  # `t = x.chunkat(i);`
    shapes: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # of buffers and parameters
    # variable → the variables that have a domain together, and the domain; `loops` are those around the place
    domains: dict[str, tuple[tuple[str, ...], tree.Expr]] = field(default_factory=dict)
    loops: dict[str, tuple[tuple[str, ...], tree.Expr]] = field(
        default_factory=dict
    )  # those around the place
    conditions: int = 0  # around the place

    def copy(self) -> Names:
        return Names({**self.tiles}, {**self.shapes}, {**self.domains}, {**self.loops}, self.conditions)

    def known(self, given: Any) -> tree.Expr | None:
        """Data as a part of its buffer; None where the text does not say which part."""
        if not isinstance(given, tree.Expr) or not root(given):
            return None
        tile = self.tiles.get(root(given))  # which is itself a part of a buffer
        return given if tile is None else _rooted(given, tile)


def uses(node: Any, is_sure: bool = True) -> Iterator[Use]:
    """Every use of data in an expression, a DMA or a simple statement."""
    match node:
        case tree.Member(name="span") | tree.Count() | tree.Wait() | tree.Swap() | tree.Rotate():
            return
        case tree.Store():
            yield Use(node.target, True, is_sure)
            yield from uses((node.target.index, node.value), is_sure)
        case tree.Dma():
            if node.source is not None:
                yield Use(node.source, False, is_sure)
            if isinstance(node.target, tree.Expr):
                yield Use(node.target, True, is_sure)
        case tree.Matrix(action="load" | "store"):
            yield Use(node.operands[0], node.action == "store", is_sure)
        case tree.Builtin() if is_atomic(node):
            yield Use(node.args[0], True, is_sure)
            yield from uses(node.args[1:], is_sure)
        case tree.Ternary():
            yield from uses(node.condition, is_sure)
            yield from uses((node.then, node.other), False)
        case tree.At():
            yield Use(node, False, is_sure)
            yield from uses(node.index, is_sure)
        case tree.ChunkAt() | tree.Tile() | tree.SpanAs() | tree.Derive():  # handed to a kernel
            yield Use(node, False, is_sure)
        case tree.Name():
            yield Use(node, False, is_sure)
        case _:
            for child in children(node):
                yield from uses(child, is_sure)


def shares(use: Use, tile: tree.Expr, known: Names, at_start: frozenset[str]) -> bool:
    """Whether a use certainly concerns an element of the tile; `at_start`: loops that the copy began in."""
    data = known.known(use.data)
    if data is None or root(data) != root(tile):
        return False
    if _is_whole(tile):
        return True
    inner = data.of if isinstance(data, tree.At) else data
    if inner == tile:
        return True
    if _is_whole(inner):
        return (
            not isinstance(data, tree.At)
            or (use.is_sure and not known.conditions and _is_everything(data, known, at_start))
            or _overlap(data, tile)
        )
    return _overlap(data, tile)


def enter(loop: tree.Foreach, known: Names) -> None:
    """The variables that run through their whole domain in a loop."""
    for each in loop.ranges:
        if isinstance(each, tree.Bind):
            known.domains.update(dict.fromkeys(each.names, (each.names, each.domain)))
        is_whole = isinstance(each, tree.Bind) or (each.low, each.high, each.step) == (None, None, None)
        for name in each.names if isinstance(each, tree.Bind) else (each.name,):
            known.loops.pop(name, None)
            if is_whole and name in known.domains:
                known.loops[name] = known.domains[name]


def changes(body: Any) -> set[str]:
    """The variables whose values change in a loop."""
    found: set[str] = set()
    for each in _all(body):
        match each:
            case tree.Range() | tree.Assign():
                found.add(each.name)
            case tree.Bind():
                found |= {*each.names, each.whole}
    return found


def mentions(tile: tree.Expr, changed: set[str]) -> bool:
    return bool(names(tile) & changed)


def _all(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from _all(child)


def _is_whole(data: tree.Expr) -> bool:
    while isinstance(data, tree.SpanAs) or (isinstance(data, tree.Member) and data.name == "data"):
        data = data.of
    return isinstance(data, tree.Name)


def _is_everything(data: tree.At, known: Names, at_start: frozenset[str]) -> bool:
    """Whether loops that began after the copy take the indices through the whole buffer."""
    shape = known.shapes.get(root(data), ())
    variables = [i.id for i in data.index if isinstance(i, tree.Name)]
    if not len(variables) == len(data.index) == len({*variables}):
        return False
    for place, name in enumerate(variables):
        if name in at_start or name not in known.loops:
            return False
        together, domain = known.loops[name]
        match domain:
            case tree.Member(name="span", of=tree.Name(id=of)):
                if of != root(data) or together != tuple(variables):
                    return False
            case tree.Mdspan() | tree.Tuple():
                position = together.index(name)
                if len(domain.items) != len(together) or len(shape) != len(variables):
                    return False
                if not _equal(domain.items[position], shape[place]):
                    return False
            case _:
                return False
    return True


def _overlap(one: tree.Expr, other: tree.Expr) -> bool:
    """Whether two parts of one buffer meet, where both are told in numbers."""
    first, second = _box(one), _box(other)
    if first is None or second is None or len(first) != len(second):
        return False
    return all(a < d and c < b for (a, b), (c, d) in zip(first, second, strict=True))


def _box(data: tree.Expr) -> list[tuple[int, int]] | None:
    match data:
        case tree.At(of=of, index=index) if _is_whole(of) and isinstance(of, tree.Name):
            return [(i.value, i.value + 1) for i in index if isinstance(i, tree.Int)]
        case tree.Tile(kind="subspan" | "view", of=tree.Name(), steps=(), strides=()):
            sizes, index = data.sizes, data.index or (tree.Int(0),) * len(data.sizes)
            numbers = [
                (n.value, i.value) for n, i in zip(sizes, index, strict=False)
                if isinstance(n, tree.Int) and isinstance(i, tree.Int)
            ]  # fmt: skip
            if len(numbers) != len(sizes) or len(sizes) != len(index):
                return None
            starts = [i if data.kind == "view" else n * i for n, i in numbers]
            return [(start, start + n) for start, (n, _) in zip(starts, numbers, strict=True)]
    return None


def _equal(extent: Any, size: Any) -> bool:
    if isinstance(size, int):
        return isinstance(extent, tree.Int) and extent.value == size
    if isinstance(size, str):
        return isinstance(extent, tree.Name) and extent.id == size
    return bool(extent == size)


def _rooted(data: tree.Expr, base: tree.Expr) -> tree.Expr:
    """The chain with another start."""
    if isinstance(data, tree.Name):
        return base
    return replace(data, of=_rooted(data.of, base))  # type: ignore[attr-defined,call-arg]
