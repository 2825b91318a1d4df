"""The syntax tree. Everything is frozen and compares by content; spans are only for messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import NOWHERE, Span

ELEMENTS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64")
SCALARS = ("int", "bool", "float", "double", *ELEMENTS)
SCOPES = ("local", "shared", "global")


@dataclass(frozen=True)
class Tree:
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# -- expressions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expr(Tree):
    pass


@dataclass(frozen=True)
class Int(Expr):
    value: int


@dataclass(frozen=True)
class Float(Expr):
    text: str  # as written: 1.0f, 1e-5


@dataclass(frozen=True)
class Text(Expr):
    value: str  # the literal with its quotes


@dataclass(frozen=True)
class Name(Expr):
    id: str


@dataclass(frozen=True)
class Whole(Expr):
    """`_`: a dimension that is not divided."""


@dataclass(frozen=True)
class Unary(Expr):
    op: str  # "!", "-" (on a literal), "#" (upper bound)
    operand: Expr


@dataclass(frozen=True)
class Binary(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Ternary(Expr):
    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True)
class Builtin(Expr):
    """`__exp(x)`, `select(c, a, b)`."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Count(Expr):
    """`|x|`: number of elements."""

    operand: Expr


@dataclass(frozen=True)
class Tuple(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Mdspan(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Member(Expr):
    """`f.data`, `x.span`."""

    of: Expr
    name: str


@dataclass(frozen=True)
class Item(Expr):
    """`x.span(i)`, `i(-1)`: one part of something with several."""

    of: Expr
    index: Expr


@dataclass(frozen=True)
class Derive(Expr):
    """`sp[(0)/2, (1)]`: an mdspan made from the extents of another."""

    of: Expr
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Extent(Expr):
    """`(0)` inside a derivation."""

    index: int


@dataclass(frozen=True)
class At(Expr):
    """`data.at(i, j)`."""

    of: Expr
    index: tuple[Expr, ...]


@dataclass(frozen=True)
class ChunkAt(Expr):
    of: Expr
    index: tuple[Expr, ...]


@dataclass(frozen=True)
class Tile(Expr):
    """`data.chunk(n..).at(i..)` and `data.subspan(n..).at(i..)`."""

    of: Expr
    kind: str  # "chunk" or "subspan"
    sizes: tuple[Expr, ...]
    index: tuple[Expr, ...]


@dataclass(frozen=True)
class SpanAs(Expr):
    of: Expr
    dims: tuple[Expr, ...]


@dataclass(frozen=True)
class Dma(Expr):
    kind: str  # "copy", "pad", "transp", "any"
    source: Expr | None = None
    target: Expr | str | None = None  # data, or a scope
    settings: tuple[Expr, ...] = ()  # of pad and transp
    is_async: bool = False
    after: str = ""


# -- statements ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stmt(Tree):
    pass


Block = tuple[Stmt, ...]


@dataclass(frozen=True)
class Remark(Stmt):
    text: str  # with its // or /* */
    same_line: bool = False


@dataclass(frozen=True)
class DeclareBuffer(Stmt):
    element: str
    dims: tuple[Expr, ...]
    name: str
    scope: str = ""
    is_mutable: bool = False
    init: Expr | None = None


@dataclass(frozen=True)
class DeclareScalar(Stmt):
    type: str
    name: str
    init: Expr | None = None
    is_mutable: bool = False


@dataclass(frozen=True)
class DeclareSpan(Stmt):
    name: str
    dims: Expr


@dataclass(frozen=True)
class Assign(Stmt):
    name: str
    value: Expr
    op: str = "="


@dataclass(frozen=True)
class Store(Stmt):
    target: At
    value: Expr
    op: str = "="


@dataclass(frozen=True)
class Do(Stmt):
    """A DMA that nobody names."""

    dma: Dma


@dataclass(frozen=True)
class Level:
    names: tuple[str, ...]  # none: nobody asks which one it is
    bound: tuple[Expr, ...]
    braced: bool = False


@dataclass(frozen=True)
class Parallel(Stmt):
    levels: tuple[Level, ...]
    body: Block


@dataclass(frozen=True)
class Bind(Tree):
    """`v = {i, j} in [4, 8]`, `i in x.span`."""

    names: tuple[str, ...]
    domain: Expr
    whole: str = ""
    braced: bool = False


@dataclass(frozen=True)
class Range(Tree):
    """`i`, `i(lo:hi:step)`: a bounded variable that is already there."""

    name: str
    low: Expr | None = None
    high: Expr | None = None
    step: Expr | None = None


@dataclass(frozen=True)
class With(Stmt):
    binds: tuple[Bind, ...]
    body: Block


@dataclass(frozen=True)
class Foreach(Stmt):
    ranges: tuple[Bind | Range, ...]
    body: Block


@dataclass(frozen=True)
class If(Stmt):
    condition: Expr
    then: Block
    other: Block = ()


@dataclass(frozen=True)
class While(Stmt):
    condition: Expr
    body: Block


@dataclass(frozen=True)
class Return(Stmt):
    value: Expr | None = None


@dataclass(frozen=True)
class Wait(Stmt):
    names: tuple[str, ...]


@dataclass(frozen=True)
class Swap(Stmt):
    first: str
    second: str


@dataclass(frozen=True)
class Call(Stmt):
    name: str
    args: tuple[Expr, ...]
    settings: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Print(Stmt):
    args: tuple[Expr, ...]
    newline: bool = True


@dataclass(frozen=True)
class Assert(Stmt):
    condition: Expr
    message: str = ""  # the literal with its quotes


@dataclass(frozen=True)
class Cpp(Stmt):
    text: str  # the literal with its quotes


# -- a file ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter(Tree):
    type: str  # element or scalar
    name: str
    dims: tuple[int | str, ...] | None = None  # "?" or a symbol; None: a scalar
    is_global: bool = False


@dataclass(frozen=True)
class Function(Tree):
    returns: str  # "auto", "void", a scalar or an element
    name: str
    parameters: tuple[Parameter, ...]
    body: Block
    dims: tuple[int | str, ...] | None = None  # of what it returns


@dataclass(frozen=True)
class HostCode(Tree):
    text: str


@dataclass(frozen=True)
class DeviceCode(Tree):
    """`__cok__ { … }`."""

    text: str


@dataclass(frozen=True)
class File(Tree):
    items: tuple[HostCode | DeviceCode | Function, ...]

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))
