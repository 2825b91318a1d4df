"""What the names of a Choreo program stand for, while it is translated."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernelscope.gcu.choreo.syntax.errors import ChoreoError, Span

from .shapes import ZERO, Dim

_RESERVED_WORDS = (
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "class", "compl", "const", "constexpr", "continue", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable",
    "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq",
    "private", "protected", "public", "register", "reinterpret_cast", "return", "short", "signed",
    "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned",
    "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq", "main", "errno",
    "stdin", "stdout", "stderr",
)  # fmt: skip
RESERVED = frozenset(_RESERVED_WORDS)
HALVES = ("f16", "bf16")
FRACTIONS = ("float", "double", *HALVES, "f32", "f64")
INTEGER = ("int", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bool")


def cpp_type(name: str) -> str:
    return name if name in ("int", "bool", "float", "double") else f"choreo::{name}"


def cpp_name(name: str) -> str:
    return f"{name}_" if name in RESERVED or name.startswith("choreo") else name


def is_in(name: str, cpp: str) -> bool:
    """Whether C++ mentions a name, which may have its namespace before it."""
    return re.search(rf"\b{re.escape(name.rpartition(':')[2])}\b", cpp) is not None


_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def unquoted(literal: str) -> str:
    """The text of a string literal, plain or raw."""
    if literal.startswith("R"):
        return literal[literal.index("(") + 1 : literal.rindex(")")]
    return re.sub(r'\\([nt"\\])', lambda m: _ESCAPES[m[1]], literal[1:-1])


def line_mark(line: int, file: str) -> str:
    """Says to the C++ compiler which line of a Choreo file follows."""
    quoted = file.replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {line} "{quoted or "choreo"}"'


@dataclass(frozen=True)
class Data:
    """A view of elements: where it starts, how far it extends, how far apart its elements are."""

    element: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    pointer: str  # C++
    offset: Dim
    root: str
    scope: str = "global"
    is_const: bool = False
    is_dense: bool = True

    @property
    def address(self) -> str:
        return self.pointer if self.offset.value == 0 else f"{self.pointer} + {self.offset.atom}"


@dataclass(frozen=True)
class Future:
    """What a DMA gives: its data, and which C++ variable holds it."""

    data: Data | None  # None: dma.any, until something is put there
    object: str = ""  # the C++ object, if it can be swapped or filled again


@dataclass(frozen=True)
class Buffers:
    """An array of buffers of one shape, one after another in memory."""

    first: Data
    counts: tuple[Dim, ...]


@dataclass(eq=False)
class Fragment:
    """A matrix in registers; its shape is known once something is loaded into it or multiplied."""

    name: str  # C++
    shape: list[Dim] = field(default_factory=list)


@dataclass(frozen=True)
class Events:
    """An event, or several, one after another in memory."""

    name: str
    pointer: str  # C++
    counts: tuple[Dim, ...] = ()
    offset: Dim = ZERO


@dataclass(frozen=True)
class Bounded:
    """A value with an upper bound."""

    value: Dim
    bound: Dim
    low: int | None = 0  # of the values it takes
    high: int | None = None
    is_shifted: bool = False  # `i - 1`: counts as i does, but may be out of its range


def bounded(value: Dim, bound: Dim) -> Bounded:
    return Bounded(value, bound, 0, None if bound.value is None else bound.value - 1)


@dataclass(frozen=True)
class Several:
    """A tuple, an mdspan, or a bounded variable over several dimensions."""

    items: tuple[object, ...]  # Dim, Bounded or Scalar


@dataclass(frozen=True)
class Scalar:
    text: str  # C++
    type: str = ""
    low: int | None = None  # of an index: the values it can take
    high: int | None = None
    is_mutable: bool = False

    @property
    def cpp(self) -> str:
        """Its C++ type; that of the variable itself where it was inferred."""
        return cpp_type(self.type) if self.type else f"decltype({self.text})"


@dataclass(frozen=True)
class LoopHead:
    """The head of a loop, as C++."""

    variable: str
    low: str
    high: str
    step: str

    def __str__(self) -> str:
        advance = f"++{self.variable}" if self.step == "1" else f"{self.variable} += {self.step}"
        return f"for (int64_t {self.variable} = {self.low}; {self.variable} < {self.high}; {advance})"


Value = Data | Future | Buffers | Events | Fragment | Bounded | Several | Scalar | Dim


@dataclass
class Scope:
    """Names, innermost first."""

    outer: Scope | None = None
    names: dict[str, Value] = field(default_factory=dict)
    depth: int = 0  # of parallel levels

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def declare(self, name: str, value: Value, span: Span) -> None:
        """Make a name known; it may hide one from outside, not one of the same block."""
        if name in self.names:
            raise ChoreoError(f"`{name}` is already declared", span)
        self.names[name] = value

    def rebind(self, name: str, value: Value) -> None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                scope.names[name] = value
                return
            scope = scope.outer
        self.names[name] = value

    def inner(self, levels: int = 0) -> Scope:
        return Scope(self, {}, self.depth + levels)
