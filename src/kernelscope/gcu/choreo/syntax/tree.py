"""The syntax tree. Everything is frozen and compares by content; spans are only for messages."""

from __future__ import annotations

from dataclasses import dataclass

from .expression_tree import At as At
from .expression_tree import Binary as Binary
from .expression_tree import Builtin as Builtin
from .expression_tree import CallValue as CallValue
from .expression_tree import ChunkAt as ChunkAt
from .expression_tree import Count as Count
from .expression_tree import Derive as Derive
from .expression_tree import Dma as Dma
from .expression_tree import Expr as Expr
from .expression_tree import Extent as Extent
from .expression_tree import Float as Float
from .expression_tree import Int as Int
from .expression_tree import Item as Item
from .expression_tree import Mdspan as Mdspan
from .expression_tree import Member as Member
from .expression_tree import Name as Name
from .expression_tree import SpanAs as SpanAs
from .expression_tree import Ternary as Ternary
from .expression_tree import Text as Text
from .expression_tree import Tile as Tile
from .expression_tree import Tuple as Tuple
from .expression_tree import Unary as Unary
from .expression_tree import Whole as Whole
from .node import ALIASES as ALIASES
from .node import AS_ELEMENT as AS_ELEMENT
from .node import ELEMENTS as ELEMENTS
from .node import SCALARS as SCALARS
from .node import SCOPES as SCOPES
from .node import Tree as Tree

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
    tied: tuple[tuple[str, str], ...] = ()  # `where i <-> j`: they always have the same value


class Foreach(Stmt):
    ranges: tuple[Bind | Range, ...]
    body: Block
    hints: tuple[Builtin, ...] = ()  # `: vectorize(i, 32)`, `: unroll(4)`


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
    scope: str  # a scope, "barrier" or "fence"
    level: str = ""  # of a barrier or fence


class Trigger(Stmt):
    events: tuple[Expr, ...]


class Wait(Stmt):
    targets: tuple[Expr, ...]  # futures and events


class Rotate(Stmt):
    names: tuple[str, ...]


class Swap(Stmt):
    first: str
    second: str


class Effect(Stmt):
    """An expression for what it does: `__atomic_add(x.at(0), 1);`."""

    value: Expr


class Matrix(Stmt):
    """One step of `mma`: a matrix in registers is filled, loaded, multiplied or stored."""

    action: str  # "fill", "load", "product", "store" or "commit"
    name: str  # the matrix that is written, or stored
    operands: tuple[Expr, ...]
    words: tuple[str, ...] = ()  # of a product the orders; of fill a type; of store "transp"
    is_new: bool = False  # `m = mma.fill 0.0f`
    swizzle: Expr | None = None


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
