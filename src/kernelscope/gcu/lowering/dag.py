"""The internal graph: buffers, nodes that compute them, and the groups that become kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from .sizes import Size, contiguous_strides, equal, is_one, is_zero, literal, product, times

ELEMENT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "s8", torch.int16: "s16", torch.int32: "s32", torch.int64: "s64",
    torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64", torch.bool: "u8",
}  # fmt: skip


INDEX = "#"  # stands for a buffer whose elements are their own numbers


class BufferScope(Enum):
    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"

    def __str__(self) -> str:
        return f"BufferScope.{self.name}"


class GraphError(Exception):
    """The internal graph is not what it must be: a mistake of the backend's own."""


@dataclass(frozen=True)
class Buffer:
    """Memory that holds one tensor."""

    name: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    scope: BufferScope = BufferScope.GLOBAL

    @property
    def order(self) -> list[int]:
        """Its dimensions from the slowest to the fastest in memory, sizes of 1 left out."""
        real = [i for i, s in enumerate(self.shape) if not is_one(s)]
        return sorted(real, key=lambda i: _weight(self.stride[i]), reverse=True)

    @property
    def is_dense(self) -> bool:
        step: Size = 1
        for i in reversed(self.order):
            if not equal(self.stride[i], step):
                return False
            step = times(step, self.shape[i])
        return True

    @property
    def dims(self) -> tuple[Size, ...]:
        """The shape in which a kernel gets it: as it lies in memory."""
        if not self.is_dense:
            return (self.extent,)
        if self.stride == contiguous_strides(self.shape) and self.shape:
            return self.shape
        return tuple(self.shape[i] for i in self.order) or (1,)

    @property
    def extent(self) -> Size:
        """Elements from the first to the last."""
        last: Size = 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            last = last + (size - 1) * stride
        return last if isinstance(last, int) else times(last)

    @property
    def numel(self) -> Size:
        return product(self.shape)


def _weight(stride: Size) -> int:
    if isinstance(stride, int):
        return stride
    return int(stride.subs(dict.fromkeys(stride.free_symbols, 1000)))  # only for order


@dataclass(frozen=True)
class Access:
    """Elements of a buffer over the dimensions of a node: where the first is, how far apart they are."""

    buffer: str
    strides: tuple[Size, ...]
    offset: Size = 0


@dataclass(frozen=True)
class Node:
    """One computation, of one buffer."""

    name: str
    op: str
    kind: str  # "pointwise", "reduce", "matmul", "cat", "aten"
    shape: tuple[Size, ...]  # what it goes over
    inputs: tuple[Access, ...] = ()
    output: str = ""
    stores: Access | None = None
    body: str = ""  # Choreo, with $0, $1 for the inputs
    compute: str = ""  # element type of its value inside a kernel
    reduced: tuple[int, ...] = ()
    how: str = ""  # "sum", "max", "min", "prod"
    symbols: frozenset[str] = frozenset()
    origin: str = ""  # the user's line
    fx: tuple[str, ...] = ()  # names of the FX nodes that it stands for
    metadata: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a.buffer for a in self.inputs if a.buffer != INDEX))

    @property
    def type(self) -> str:
        return {
            "pointwise": "Elementwise operation",
            "reduce": "Reduction operation",
            "matmul": "Matrix operation",
            "cat": "Memory operation",
            "aten": "ATen operation",
        }[self.kind]

    def text(self) -> str:
        """The node as one line of code."""
        given = ", ".join(f"{a.buffer}{_placed(a)}" for a in self.inputs)
        domain = ", ".join(map(literal, self.shape))
        over = f" over dims {list(self.reduced)} by {self.how}" if self.kind == "reduce" else ""
        body = f" = {self.body}" if self.body else ""
        return f"{self.output} = {self.kind}.{self.op}([{domain}], ({given})){over}{body}"


def _placed(a: Access) -> str:
    offset = "" if is_zero(a.offset) else f"+{literal(a.offset)}"
    return f"<{', '.join(map(literal, a.strides))}>{offset}"


@dataclass
class Dag:
    """A graph on its way to kernels."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    groups: list[tuple[str, ...]] = field(default_factory=list)  # node names; empty before fusion
    same: dict[str, str] = field(default_factory=dict)  # buffers that are not made, and the equal one
    refusals: list[tuple[str, str, str]] = field(default_factory=list)  # two nodes, why they are not one

    def node(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)

    def producers(self) -> dict[str, Node]:
        return {n.output: n for n in self.nodes if n.output}

    def edges(self) -> list[tuple[str, str]]:
        made = self.producers()
        found = [(made[b].name, n.name) for n in self.nodes for b in n.reads if b in made]
        return list(dict.fromkeys(found))

    def text(self) -> str:
        """The graph as code."""
        lines = [f"def graph({', '.join(self.inputs)}):"]
        group_of = {name: i for i, group in enumerate(self.groups) for name in group}
        for n in self.nodes:
            lines.append(f"    {n.text()}" + (f"  # group {group_of[n.name]}" if n.name in group_of else ""))
        return "\n".join([*lines, f"    return ({', '.join(self.outputs)}{',' if self.outputs else ''})"])

    def verify(self, after: str) -> None:
        """Raise when the graph is not sound; called after each pass."""
        known = set(self.inputs)
        made: set[str] = set()
        for n in self.nodes:
            for b in n.reads:
                if b not in self.buffers:
                    raise GraphError(f"after {after}: {n.name} reads {b}, which is not a buffer")
                if b not in known and b not in made:
                    raise GraphError(f"after {after}: {n.name} reads {b} before it is computed")
            for a in (*n.inputs, *filter(None, [n.stores])):
                if n.kind in ("pointwise", "reduce") and len(a.strides) != len(n.shape):
                    raise GraphError(f"after {after}: {n.name} goes over {len(n.shape)} dims, {a} does not")
            if n.output in made or n.output in known:
                raise GraphError(f"after {after}: {n.output} is computed twice")
            made.add(n.output)
        for name in self.outputs:
            if name not in known | made:
                raise GraphError(f"after {after}: the output {name} is never computed")
        self._verify_groups(after)

    def _verify_groups(self, after: str) -> None:
        if not self.groups:
            return
        grouped = [name for group in self.groups for name in group]
        if sorted(grouped) != sorted(n.name for n in self.nodes):
            raise GraphError(f"after {after}: not every node is in exactly one group")
        place = {name: i for i, group in enumerate(self.groups) for name in group}
        for a, b in self.edges():
            if place[a] > place[b]:
                raise GraphError(f"after {after}: {b} is in an earlier group than {a}, which it needs")
