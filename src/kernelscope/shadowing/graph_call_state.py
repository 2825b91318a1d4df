"""One graph call: what each variable of the wrapper holds at this moment."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.shadowing.checks.returned_values import Places, Returned, places_of
from kernelscope.shadowing.culprit import Culprit, Ran
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.in_place import InPlace, find_variables, find_writers
from kernelscope.shadowing.reference.node_kinds import (
    NodeFacts,
    is_uninitialised,
    is_user_kernel,
    results_of,
    value_of,
    writes,
)
from kernelscope.shadowing.reference.places import Holdings, Place, place_of
from kernelscope.shadowing.reference.wrapper_variables import WrapperText, read_text

Known = tuple[frozenset[str], frozenset[tuple[str, frozenset[Node]]]]  # doubted buffers; nodes, by piece


@dataclass(frozen=True, slots=True)
class Function:
    """A wrapper, or the body of a branch or loop in it: its graph, and what its text shows."""

    lowered: LoweredGraph
    text: WrapperText
    in_place: InPlace
    inner: dict[str, Function]  # by name
    places: Places  # by node: where the graph returns it
    late: dict[str, tuple[Node, int]]  # by variable that a loop changes: its value after this line
    doubted: set[str] = field(default_factory=set)  # buffers that do not hold what their origins suggest
    facts: dict[Node, NodeFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Writer:
    """A launch that wrote to memory."""

    index: int
    launch: Ran
    argument: str  # the kernel's name for it


@dataclass(frozen=True, slots=True)
class Lost:
    """A value that was overwritten."""

    name: str  # the variable that had it
    place: Place
    writer: Writer


def read_function(lowered: LoweredGraph, source: str, body: str = "") -> Function:
    """Worked out once for a graph."""
    text = read_text(source, lowered.path, body, _bodies_in(lowered))
    in_place = find_writers(list(lowered.module.graph.nodes))
    made: dict[Node, int] = {}  # by node: the first line that gives a variable its value
    for line, target in sorted(text.targets.items()):
        for name in (target, *text.items_of(target)):
            if name in lowered.nodes:
                made.setdefault(lowered.nodes[name], line)
    find_variables(
        in_place, lowered.mutates, lowered.origins, lowered.nodes, text.writes, made, lowered.inputs or {}
    )
    inner = {name: read_function(each, source, name) for name, each in lowered.inner.items()}
    late = {name: (node, _last_call(source, bodies)) for name, (node, bodies) in lowered.late.items()}
    return Function(lowered, text, in_place, inner, places_of(lowered.module, in_place), late)


def _last_call(source: str, functions: Sequence[str]) -> int:
    """The last line that calls one of these functions."""
    called = tuple(f"{name}(" for name in functions)
    lines = enumerate(source.splitlines(), 1)
    found = (i for i, line in lines if not line.startswith("def ") and any(name in line for name in called))
    return max(found, default=0)


def _bodies_in(lowered: LoweredGraph) -> set[str]:
    return set(lowered.inner).union(*map(_bodies_in, lowered.inner.values()))


class GraphCallState:
    """Which node's value each variable has, changing with each launch."""

    def __init__(self, function: Function, name: str, outer: GraphCallState | None = None) -> None:
        self.lowered = lowered = function.lowered
        self.doubted = function.doubted
        self.facts = function.facts
        self.text = function.text
        self.in_place = function.in_place
        self.name = name
        self.returned = Returned(function.places)
        self._functions = function.inner
        self._inner: dict[str, GraphCallState] = {}
        self._outer = outer  # whose variables a body can write to as well
        self._line = 0  # of the last launch
        self.inputs: dict[str, Node] = (
            {str(node.target): node for node in lowered.module.graph.nodes if node.op == "placeholder"}
            if lowered.inputs is None
            else dict(lowered.inputs)
        )
        self._unseen = self.inputs | lowered.views  # that get a value without a launch
        self._late = dict(function.late)
        self.holds = Holdings()
        self.overwritten = {
            node
            for base in lowered.mutates.values()
            if (node := lowered.nodes.get(base)) is not None and any(map(is_user_kernel, node.users))
        }
        self.lost: dict[Node, Lost] = {}  # values that a launch has overwritten
        self.unread = Holdings()  # of variables that the wrapper does not read
        self.done: set[str] = set()  # variables that a launch has written to
        self.carried: dict[str, dict[Node, torch.Tensor]] = {}  # by piece: its kernel's inputs
        self.makers: dict[str, list[str]] = {}
        self.pieces: dict[str, Culprit] = {}  # by piece: its last maker
        self.wrong: set[str] = set()  # kernels that are
        self.symbols: dict[str, Any] = {}

    def at(self, functions: Sequence[str], line: int) -> GraphCallState:
        """That of the innermost of these functions: a body is executed anew each time it is entered."""
        name = next((name for name in functions if name in self._functions), None)
        if name is None:
            self._line = line
            return self
        inner = self._inner.get(name)
        is_own = self._functions[name].inner.keys().isdisjoint(functions)
        if inner is None or (is_own and line <= inner._line):  # no line comes twice: loops are bodies too
            inner = self._inner[name] = GraphCallState(self._functions[name], self.name, self)
        inner.symbols = self.symbols
        return inner.at(functions, line)

    def known(self) -> Known:
        """On which the nodes of a launch depend, beside its site."""
        carried = frozenset((name, frozenset(nodes)) for name, nodes in self.carried.items())
        return frozenset(self.doubted), carried

    def node_of(self, name: str, tensor: torch.Tensor | None) -> Node | None:
        """The node whose value this variable holds when its last write is done."""
        lowered = self.lowered
        found = self.in_place.base_in(name) or self._mutated_input(name) or lowered.nodes.get(name)
        if found is None and (source := self.source_of(name)):
            found = lowered.nodes.get(source) or self.inputs.get(source)
        if found is None:
            found = self._by_result(name, tensor)
        return found if found is None or _fits(found, tensor) else None

    def guess_of(self, name: str, tensor: torch.Tensor | None) -> Node | None:
        """The node whose value it seems to hold: the last that went into it, if that looks like it."""
        source = self.source_of(name) or name
        if not self.doubted.isdisjoint((name, source)) or self.whole_of(name):
            return None
        others = {*self.lowered.nodes.values(), *self.in_place.variables}
        found = by_origin(
            [n for n in self.lowered.origins.get(source, ()) if n not in others], tensor, self.symbols
        )
        return found if found is None or _fits(found, tensor) else None

    def look_at(self, alive: Mapping[str, Any]) -> None:
        """What has values without a launch: the graph's inputs, and the results of branches and loops."""
        for name, node in [*self._unseen.items()]:
            if self._put(name, node, alive):
                del self._unseen[name]
        for name, (node, line) in [*self._late.items()]:
            if self._line > line and self._put(name, node, alive):
                del self._late[name]

    def _put(self, name: str, node: Node, alive: Mapping[str, Any]) -> bool:
        """Note where the value of a variable lies that no launch has written."""
        names = {old: new for new, old in self.text.renamed.items()}
        newer, tensor = name, alive.get(name)
        while tensor is None and names.get(newer, newer) not in (newer, *self.done):
            newer = names[newer]  # its memory was given a new name before it was ever seen
            tensor = alive.get(newer)
        if not isinstance(tensor, torch.Tensor):
            return False
        place, fake = place_of(tensor), value_of(node)
        if newer != name:
            try:
                place = place and place.laid_out_as(fake, self.symbols)
            except KeyError:  # a size that is not known yet
                return False
        self.holds.put(name, node, place)
        return True

    def overwrite(self, tensors: Iterable[Any], writer: Writer | None = None) -> None:
        """A launch, where it is known which, writes to these: what their memory held before is gone."""
        for place in filter(None, map(place_of, tensors)):
            state: GraphCallState | None = self
            while state is not None:
                for name, held in state.holds.overwrite(place).items():
                    if writer is not None and held.node is not None and held.place is not None:
                        state.lost[held.node] = Lost(name, held.place, writer)
                state.unread.overwrite(place)
                state = state._outer

    def lose(self, tensors: Iterable[Any]) -> None:
        """A launch writes to these that could not be followed, in this function or in a body."""
        tensors = list(tensors)
        self.overwrite(tensors)
        for inner in self._inner.values():
            inner.lose(tensors)

    def source_of(self, name: str) -> str:
        """What this buffer is a copy of, in another layout."""
        source = ""
        while name in self.lowered.copies:
            source = name = self.lowered.copies[name]
        return source

    def _by_result(self, name: str, tensor: torch.Tensor | None) -> Node | None:
        """The wrapper returns it as the value of this node."""
        nodes = results_of(self.lowered.module)
        if tensor is None or len(nodes) != len(self.text.results):
            return None
        found = [n for n, result in zip(nodes, self.text.results, strict=True) if result == name]
        return next((n for n in found if isinstance(n, Node) and _is_shape(n, tensor)), None)

    def whole_of(self, name: str) -> str:
        """The buffer that this one is a slice of (aten.cat)."""
        return next((whole for whole, parts in self.lowered.parts.items() if name in parts), "")

    def _mutated_input(self, name: str) -> Node | None:
        node = self.inputs.get(name)
        if node is None:
            return None
        others: list[Node] = list(self.lowered.module.graph.nodes)
        writer = next((other for other in reversed(others) if node in writes(other)), None)
        return None if writer is None else _written_part(writer, node)


def _written_part(writer: Node, target: Node) -> Node:
    """Of an operator that only writes to each tensor of a list: the one of its items that is this tensor."""
    schema = getattr(writer.target, "_schema", None)
    if schema is None or schema.returns:
        return writer
    place = writes(writer).index(target)
    items = (user for user in writer.users if user.target is operator.getitem and user.args[1] == place)
    return next(items, writer)


def by_origin(
    origins: Sequence[Node], tensor: torch.Tensor | None, symbols: Mapping[str, Any] = MappingProxyType({})
) -> Node | None:
    """Stored for another kernel: the last of its nodes with this dtype and shape."""
    if tensor is None:
        return None
    fitting = [n for n in origins if _has_shape(n, tensor, symbols)]
    inner, todo = set[Node](), [i for n in fitting for i in n.all_input_nodes]
    while todo:
        if (node := todo.pop()) in origins and node not in inner:
            inner.add(node)
            todo += node.all_input_nodes
    last = [n for n in fitting if n not in inner]
    return last[0] if len(last) == 1 else None


def _is_shape(node: Node, tensor: torch.Tensor) -> bool:
    """Whether the node's value has the tensor's shape, but for sizes of one."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or value.dtype != tensor.dtype:
        return False
    # A size that is known only later is believed: the numbers of elements are compared again.
    sizes = [n for n in value.shape if not isinstance(n, int) or n != 1]
    real = [n for n in tensor.shape if n != 1]
    pairs = zip(sizes, real, strict=False)
    return len(sizes) == len(real) and all(not isinstance(a, int) or a == b for a, b in pairs)


def _has_shape(node: Node, tensor: torch.Tensor, symbols: Mapping[str, Any]) -> bool:
    """Whether the node's value has exactly the tensor's shape; of symbolic sizes, as the graph was called."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or value.dtype != tensor.dtype or is_uninitialised(node):
        return False
    try:
        return concrete_shape(value, symbols) == tuple(tensor.shape)
    except KeyError:  # a size that is known only once the kernel has run
        return False


def _fits(node: Node, tensor: torch.Tensor | None) -> bool:
    value = value_of(node)
    if tensor is None or not isinstance(value, torch.Tensor):
        return tensor is None
    if value.dtype != tensor.dtype:
        return False
    return not all(isinstance(n, int) for n in value.shape) or value.numel() == tensor.numel()
