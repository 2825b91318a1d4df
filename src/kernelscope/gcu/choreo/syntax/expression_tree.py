"""The expressions of the syntax tree."""

from __future__ import annotations

from .node import Tree


class Expr(Tree): ...


class Int(Expr):
    value: int


class Float(Expr):
    text: str  # as written: 1.0f, 1e-5


class Text(Expr):
    value: str  # the literal with its quotes


class Name(Expr):
    id: str


class Whole(Expr):
    """`_`: a dimension that is not divided."""


class Unary(Expr):
    op: str  # "!", "~", "-" (on a literal), "#" (upper bound), "&" (where it lies)
    operand: Expr


class Binary(Expr):
    op: str
    left: Expr
    right: Expr


class Ternary(Expr):
    condition: Expr
    then: Expr
    other: Expr


class Builtin(Expr):
    """`__exp(x)`, `select(c, a, b)`."""

    name: str
    args: tuple[Expr, ...]


class CallValue(Expr):
    """`call f<3>(x)`, for what the function returns."""

    name: str
    args: tuple[Expr, ...]
    settings: tuple[Expr, ...] = ()


class Count(Expr):
    """`|x|`: number of elements."""

    operand: Expr


class Tuple(Expr):
    items: tuple[Expr, ...]


class Mdspan(Expr):
    items: tuple[Expr, ...]


class Member(Expr):
    """`f.data`, `x.span`."""

    of: Expr
    name: str


class Item(Expr):
    """`x.span(i)`, `i(-1)`: one part of something with several."""

    of: Expr
    index: Expr


class Derive(Expr):
    """`sp[(0)/2, (1)]`: an mdspan made from the extents of another; `x[i]`: one of an array of buffers."""

    of: Expr
    items: tuple[Expr, ...]


class Extent(Expr):
    """`(0)` inside a derivation."""

    index: int


class At(Expr):
    """`data.at(i, j)`."""

    of: Expr
    index: tuple[Expr, ...]


class ChunkAt(Expr):
    of: Expr
    index: tuple[Expr, ...]


class Tile(Expr):
    """`data.chunk(n..).at(i..)`, and so on with `subspan`, `modspan` and `view(n..).from(i..)`."""

    of: Expr
    kind: str  # "chunk", "subspan", "modspan" (what is left of tiles) or "view" (elements from i on)
    sizes: tuple[Expr, ...]
    index: tuple[Expr, ...]  # none: the first tile
    steps: tuple[Expr, ...] = ()  # `.step(…)`: how far tiles are apart
    strides: tuple[Expr, ...] = ()  # `.stride(…)`: how far the elements of a tile are apart


class SpanAs(Expr):
    of: Expr
    dims: tuple[Expr, ...]


class Dma(Expr):
    kind: str  # "copy", "pad", "transp", "any"
    source: Expr | None = None
    target: Expr | str | None = None  # data, or a scope
    settings: tuple[Expr, ...] = ()  # of pad and transp
    is_async: bool = False
    after: str = ""
    engine: str = "dma"  # or "tma", which means the same here
    swizzle: Expr | None = None  # how the hardware lays it out; here it is laid out in order
    event: Expr | None = None  # which is triggered when it has ended
