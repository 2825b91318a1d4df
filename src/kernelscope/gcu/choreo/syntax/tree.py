"""The syntax tree. Everything is frozen and compares by content; spans are only for messages."""

from __future__ import annotations

from dataclasses import dataclass

from .node import ALIASES as ALIASES
from .node import AS_ELEMENT as AS_ELEMENT
from .node import ELEMENTS as ELEMENTS
from .node import SCALARS as SCALARS
from .node import SCOPES as SCOPES
from .node import Tree as Tree

# -- expressions -----------------------------------------------------------------------------------------


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
    """`data.chunk(n..).at(i..)` and `data.subspan(n..).at(i..)`."""

    of: Expr
    kind: str  # "chunk" or "subspan"
    sizes: tuple[Expr, ...]
    index: tuple[Expr, ...]


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


# -- statements ------------------------------------------------------------------------------------------


class Stmt(Tree): ...


Block = tuple[Stmt, ...]


class Remark(Stmt):
    text: str  # with its // or /* */
    same_line: bool = False


class DeclareBuffer(Stmt):
    element: str
    dims: tuple[Expr, ...]
    name: str
    scope: str = ""
    is_mutable: bool = False
    init: Expr | None = None
    counts: tuple[Expr, ...] = ()  # of an array of buffers


class DeclareEvent(Stmt):
    name: str
    scope: str
    counts: tuple[Expr, ...] = ()


class DeclareScalar(Stmt):
    type: str  # none: that of its value
    name: str
    init: Expr | None = None
    is_mutable: bool = False


class DeclareSpan(Stmt):
    name: str
    dims: Expr


class Assign(Stmt):
    name: str
    value: Expr
    op: str = "="


class Store(Stmt):
    target: At
    value: Expr
    op: str = "="


class Do(Stmt):
    """A DMA without a name."""

    dma: Dma


@dataclass(frozen=True)
class Level:
    names: tuple[str, ...]  # none: which one it is does not matter
    bound: tuple[Expr, ...]
    braced: bool = False
    kind: str = ""  # "block", "thread", …


class Parallel(Stmt):
    levels: tuple[Level, ...]
    body: Block


class Bind(Tree):
    """`v = {i, j} in [4, 8]`, `i in x.span`."""

    names: tuple[str, ...]
    domain: Expr
    whole: str = ""
    braced: bool = False


class Range(Tree):
    """`i`, `i(lo:hi:step)`: a bounded variable that is already there."""

    name: str
    low: Expr | None = None
    high: Expr | None = None
    step: Expr | None = None


class With(Stmt):
    binds: tuple[Bind, ...]
    body: Block


class Foreach(Stmt):
    ranges: tuple[Bind | Range, ...]
    body: Block


class If(Stmt):
    condition: Expr
    then: Block
    other: Block = ()


class While(Stmt):
    condition: Expr
    body: Block


class Return(Stmt):
    value: Expr | None = None


class Break(Stmt): ...


class Continue(Stmt): ...


class InThreads(Stmt):
    condition: Expr
    body: Block
    is_async: bool = False


class Sync(Stmt):
    scope: str


class Trigger(Stmt):
    events: tuple[Expr, ...]


class Wait(Stmt):
    targets: tuple[Expr, ...]  # futures and events


class Rotate(Stmt):
    names: tuple[str, ...]


class Swap(Stmt):
    first: str
    second: str


class Call(Stmt):
    name: str
    args: tuple[Expr, ...]
    settings: tuple[Expr, ...] = ()


class Print(Stmt):
    args: tuple[Expr, ...]
    newline: bool = True


class Assert(Stmt):
    condition: Expr
    message: str = ""  # the literal with its quotes


class Cpp(Stmt):
    text: str  # the literal with its quotes


# -- a file ----------------------------------------------------------------------------------------------


class Parameter(Tree):
    type: str  # element or scalar
    name: str
    dims: tuple[int | str, ...] | None = None  # "?" or a symbol; None: a scalar
    is_global: bool = False


class Function(Tree):
    returns: str  # "auto", "void", a scalar or an element
    name: str
    parameters: tuple[Parameter, ...]
    body: Block
    dims: tuple[int | str, ...] | None = None  # of what it returns


class HostCode(Tree):
    text: str


class DeviceCode(Tree):
    """`__cok__ { … }`."""

    text: str


class File(Tree):
    items: tuple[HostCode | DeviceCode | Function, ...]

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))
