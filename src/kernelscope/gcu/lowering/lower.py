"""An ATen graph as the internal graph. What is not lowered here stays an ATen call, and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .dag import ELEMENT, Access, Buffer, Dag, Node
from .fx_tensors import Refused, Strided, is_tensor, strided
from .operator_texts import LISTS_OF_VIEWS, VIEWS
from .pointwise import PointwiseLowering
from .shapes import ShapeLowering
from .sizes import Size, contiguous_strides, equal, is_one, is_zero, size_of, sizes_of, supported, symbols_in


@dataclass
class Fallback:
    """An operator that runs through ATen."""

    node: str
    target: str
    reason: str
    origin: str = ""


@dataclass
class Lowered:
    """What became of an FX graph."""

    dag: Dag
    graph: torch.fx.Graph
    views: dict[str, Strided] = field(default_factory=dict)  # by name of the FX node
    fallbacks: list[Fallback] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # FX placeholder → name in the DAG
    told: set[str] = field(default_factory=set)  # symbols whose values the inputs give


def lower(
    graph: torch.fx.Graph, names: dict[str, str], hint: Callable[[Size], int], matmul_limit: int
) -> Lowered:
    """The internal graph of an ATen graph; `names` gives placeholders friendlier names."""
    return _Lowering(graph, names, hint, matmul_limit).run()


class _Lowering(PointwiseLowering, ShapeLowering):
    def __init__(
        self, graph: torch.fx.Graph, names: dict[str, str], hint: Callable[[Size], int], matmul_limit: int
    ) -> None:
        self.out: Lowered = Lowered(Dag(), graph, renamed=names)
        self.hint = hint
        self.matmul_limit = matmul_limit
        self._taken: set[str] = set()
        self._lists: set[str] = set()  # nodes whose values are lists of views
        self._current: torch.fx.Node | None = None

    def run(self) -> Lowered:
        out: Lowered = self.out
        for node in self.out.graph.nodes:
            self._current = node
            if node.op in ("placeholder", "get_attr"):
                self._input(node)
            elif node.op == "output":
                self._output(node)
            elif is_tensor(node) or isinstance(node.meta.get("val"), list | tuple):
                self._call(node)
            elif node.meta.get("val") is None:
                self._fall_back(node, "it has no result and runs for its side effect")
            elif _packet(node.target) == "_local_scalar_dense":
                self._fall_back(node, "the program reads its value as a number")
        return out

    def _input(self, node: torch.fx.Node) -> None:
        told = node.meta["val"].shape if is_tensor(node) else [node.meta.get("val")]
        self.out.told |= {str(s) for s in map(size_of, told) if getattr(s, "is_Symbol", False)}
        if not is_tensor(node):
            return
        value = node.meta["val"]
        name = self.unique(self.out.renamed.get(node.name, node.name))
        self.out.renamed[node.name] = name
        shape, stride = sizes_of(value.shape), sizes_of(value.stride())
        self.out.dag.buffers[name] = Buffer(name, shape, stride, value.dtype)
        self.out.dag.inputs.append(name)
        self.out.views[node.name] = Strided(name, shape, stride, 0, value.dtype)

    def _output(self, node: torch.fx.Node) -> None:
        for each in node.all_input_nodes:
            if each.name in self.out.views:
                self.out.dag.outputs.append(self.out.views[each.name].buffer)
        self.out.dag.outputs = list(dict.fromkeys(self.out.dag.outputs))

    def _call(self, node: torch.fx.Node) -> None:
        target: Any = node.target
        name = _packet(target)
        try:
            first: Any = node.args[0] if node.args else None
            if name == "getitem" and first.name in self._lists:
                self._view(node, first.args[0])
                return
            if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
                raise Refused("no lowering for this kind of call")
            self._check(node)
            if name in LISTS_OF_VIEWS:
                self._lists.add(node.name)
                return
            if name in VIEWS and is_tensor(node):
                self._view(node)
                return
            lowering = getattr(self, f"op_{name}", None)
            if lowering is not None:
                lowering(node)
            else:
                self.pointwise(node, name)
        except Refused as refused:
            self._fall_back(node, str(refused))

    def _check(self, node: torch.fx.Node) -> None:
        for each in (node, *node.all_input_nodes):
            value: Any = each.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._check_told(size_of(value))
            if not is_tensor(each):
                continue
            if value.device.type != "cpu":
                raise Refused(f"it is on {value.device}")
            if value.dtype not in ELEMENT:
                raise Refused(f"no element type for {value.dtype}")
            if value.layout is not torch.strided or value.is_sparse:
                raise Refused(f"its layout is {value.layout}")
            sizes = (*sizes_of(value.shape), *sizes_of(value.stride()))
            if not all(map(supported, sizes)):
                raise Refused("its shape is not a polynomial of the inputs' shapes")
            self._check_told(*sizes)

    def _check_told(self, *sizes: Size) -> None:
        if not set().union(*map(symbols_in, sizes), set()) <= self.out.told:
            raise Refused("its size or a number in it is known only when the graph runs")

    def _view(self, node: torch.fx.Node, of: Any = None) -> None:
        """Metadata only: the same buffer, seen otherwise."""
        base = node.args[0] if of is None else of
        assert isinstance(base, torch.fx.Node)
        known = self.out.views.get(base.name)
        value, before = node.meta["val"], base.meta["val"]
        if known is None or value.dtype != known.dtype:
            raise Refused("its operand is not a tensor of this graph")
        moved = size_of(value.storage_offset() - before.storage_offset())
        if not _shares(node):
            raise Refused("it copies its operand")
        self.out.views[node.name] = strided(known.buffer, value, known.offset + moved)

    def _fall_back(self, node: torch.fx.Node, reason: str) -> None:
        origin = _origin(node)
        accesses = tuple(Access(b, (), 0) for b in dict.fromkeys(self._buffers_of(node)))
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:  # everything before it must have run
            accesses += tuple(Access(n.output, (), 0) for n in self.out.dag.nodes)
        name = self.unique(node.name)
        value: Any = node.meta.get("val")
        if is_tensor(node):
            shape, stride = sizes_of(value.shape), sizes_of(value.stride())
            if value.layout is torch.strided and value.dtype in ELEMENT:
                self.out.views[node.name] = Strided(name, shape, stride, 0, value.dtype)
            self.out.dag.buffers[name] = Buffer(name, shape, stride, value.dtype)
        else:
            self.out.dag.buffers[name] = Buffer(name, (), (), torch.uint8)
        self.out.dag.nodes.append(
            Node(name, str(node.target), "aten", (), accesses, name, fx=(node.name,), origin=origin)
        )
        if _packet(node.target) != "getitem":
            self.out.fallbacks.append(Fallback(node.name, str(node.target), reason, origin))

    def _buffers_of(self, node: torch.fx.Node) -> Iterator[str]:
        """What must be computed before an operator: its tensors, and those that its numbers come from."""
        for each in node.all_input_nodes:
            if each.name in self.out.views:
                yield self.out.views[each.name].buffer
            elif each.name in self.out.dag.buffers:
                yield each.name
            elif each.op == "call_function" and not is_tensor(each):
                yield from self._buffers_of(each)

    # -- for the lowerings -----------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        given, count = name, 1
        while name in self._taken:
            count += 1
            name = f"{given}_{count}"
        self._taken.add(name)
        return name

    def view_of(self, node: Any) -> Strided:
        if isinstance(node, torch.fx.Node) and node.name in self.out.views:
            found: Strided = self.out.views[node.name]
            return found
        raise Refused(f"its operand {node} is not a plain tensor")

    def add(
        self,
        name: str,
        op: str,
        kind: str,
        shape: Sequence[Size],
        inputs: Sequence[Access],
        output: tuple[tuple[Size, ...], tuple[Size, ...], torch.dtype],
        stores: tuple[Size, ...],
        **more: Any,
    ) -> Strided:
        """A node and the buffer that it computes."""
        out_shape, out_stride, dtype = output
        buffer = Buffer(self.unique(name), out_shape, out_stride, dtype)
        if not buffer.is_dense and not is_zero(buffer.numel):
            self._taken.discard(buffer.name)
            raise Refused("its result has gaps in memory")
        self.out.dag.buffers[buffer.name] = buffer
        assert self._current is not None
        self.out.dag.nodes.append(
            Node(
                buffer.name,
                op,
                kind,
                tuple(shape),
                tuple(inputs),
                buffer.name,
                Access(buffer.name, tuple(stores)),
                origin=_origin(self._current),
                fx=(self._current.name,),
                **more,
            )
        )
        return Strided(buffer.name, out_shape, out_stride, 0, dtype)

    def geometry(self, node: torch.fx.Node) -> tuple[tuple[Size, ...], tuple[Size, ...], torch.dtype]:
        value = node.meta["val"]
        return sizes_of(value.shape), sizes_of(value.stride()), value.dtype


def _shares(node: torch.fx.Node) -> bool:
    """Whether a view-like operator really gives a view: reshape may copy."""
    if _packet(node.target) != "reshape":
        return True
    base = node.args[0]
    assert isinstance(base, torch.fx.Node)
    shape, stride = (sizes_of(x) for x in (base.meta["val"].shape, base.meta["val"].stride()))
    return all(
        equal(a, b) or is_one(s) for a, b, s in zip(stride, contiguous_strides(shape), shape, strict=True)
    )


def _packet(target: Any) -> str:
    packet = getattr(target, "_overloadpacket", None)
    name = (
        packet._qualified_op_name.split("::")[-1] if packet is not None else getattr(target, "__name__", "")
    )
    return str(name)


def _origin(node: torch.fx.Node) -> str:
    return str(node.meta.get("stack_trace") or "")
