"""Which buffer holds the value of which FX node; known when a graph is lowered, not from a cache."""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernelscope.probes.compiler_steps.graph_copies import without_ordering
from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "torch._inductor.graph:GraphLowering._compile_to_module"
_APPLY = "torch._inductor.pattern_matcher:LoweringPatternEntry.apply"
_PATTERN = "kernelscope_pattern"  # in a node's meta


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """One graph as it was lowered; nodes are those of `module`."""

    path: str  # of the wrapper's source
    module: Any  # the GraphModule that was lowered: after all FX passes
    nodes: dict[str, Any]  # by buffer: the node whose value it holds once all of its writes are done
    origins: dict[str, tuple[Any, ...]]  # by buffer: all nodes that went into it
    mutates: dict[str, str]  # by buffer without memory of its own: the buffer or input that it writes to
    parts: dict[str, tuple[str, ...]]  # by buffer: those that are slices of it (aten.cat)
    copies: dict[str, str] = field(default_factory=dict)  # by buffer: what it is a copy of
    inputs: dict[str, Any] | None = None  # by variable: the placeholder; None: each has its own name
    views: dict[str, Any] = field(default_factory=dict)  # by variable that is made without a launch
    late: dict[str, tuple[Any, tuple[str, ...]]] = field(
        default_factory=dict
    )  # that a loop changes: its bodies
    same: dict[Any, tuple[Any, ...]] = field(default_factory=dict)  # by node: others with the same value
    inner: dict[str, LoweredGraph] = field(default_factory=dict)  # by function: bodies of branches and loops
    problems: list[str] = field(default_factory=list)


class Lowerings(PatchSet):
    """The probe: tells of each graph that is lowered while it is installed."""

    def __init__(self, emit: Callable[[LoweredGraph], None]) -> None:
        self._emit = emit
        super().__init__(Patch(_COMPILE, self._around), Patch(_APPLY, _noting_matches))

    def _around(self, original: Any) -> Any:
        def compile_to_module(lowering: Any) -> Any:
            module = original(lowering)
            with contained("reading what lowering knows"):
                self._emit(_lowered(lowering, str(module.__file__)))
            return module

        return compile_to_module


def _lowered(lowering: Any, path: str) -> LoweredGraph:
    graph = LoweredGraph(path, without_ordering(lowering.orig_gm), {}, {}, {}, {})
    try:
        known = {node.name: node for node in graph.module.graph.nodes}
        for name, buffer in lowering.name_to_buffer.items():
            origin = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
            if origin is not None and origin.name in known:
                graph.nodes[name] = known[origin.name]
            found = getattr(buffer, "origins", None) or ()
            graph.origins[name] = tuple(known[n.name] for n in found if n.name in known)
            if type(buffer).__name__ == "ConcatKernel":
                graph.parts[name] = tuple(each.get_name() for each in buffer.inputs)
        graph.nodes.update(_items_of_results(lowering, known))
        graph.mutates.update(lowering.scheduler.mutation_real_name)
        changed = {*graph.mutates, *graph.mutates.values()}
        graph.copies.update(each for each in _copied_buffers(lowering) if changed.isdisjoint(each))
        _add_bodies(graph, lowering)
    except Exception:  # private API: what it cannot say is not checked, and that is told
        graph.problems.append(traceback.format_exc(limit=-2).strip())
    return graph


def _add_bodies(graph: LoweredGraph, lowering: Any) -> None:
    """Branches and bodies of loops: graphs of their own, that the same wrapper has as functions."""
    from torch._inductor.ir import MultiOutput

    results: set[str] = set()
    for operation in lowering.operations:
        bodies = list(_bodies_of(operation))
        if bodies:
            results.add(operation.get_name())
        for body in bodies:
            if body.name not in graph.inner and getattr(body, "scheduler", None) is not None:
                inner = _lowered(body, graph.path)
                inputs = [node for node in inner.module.graph.nodes if node.op == "placeholder"]
                names = dict(zip(body.graph_input_names, inputs, strict=True))
                graph.inner[body.name] = replace(inner, inputs=names)
                graph.problems.extend(inner.problems)
        for written in getattr(operation, "mutation_outputs", None) or ():
            name = graph.mutates.get(written.get_name(), "")
            if bodies and name in graph.nodes:  # a loop writes to it, and it is one of the results
                graph.late[name] = graph.nodes[name], tuple(body.name for body in bodies)
    for name, buffer in lowering.name_to_buffer.items():
        maker: Any = buffer.inputs[0] if isinstance(buffer, MultiOutput) else None
        # Not the buffer's own name: what a template computes inside of it has none.
        if (name if maker is None else maker.get_name()) in results and name in graph.nodes:
            graph.views[name] = graph.nodes[name]


def _bodies_of(operation: Any) -> Iterator[Any]:
    """The graphs that an operation executes: of branches and loops, or one that stands for a template."""
    from torch._inductor.graph import GraphLowering
    from torch._inductor.ir import Subgraph

    for part in vars(operation).values():
        body = part.graph if isinstance(part, Subgraph) else part
        if isinstance(body, GraphLowering) and body.name:
            yield body


# -- what lowering does not write down -----------------------------------------------------------------


class _NotACopy(Exception):
    """It computes something."""


class _Loads:
    """In place of Inductor's operations: notes what is loaded, and allows nothing else."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Any]] = []

    def load(self, name: str, index: Any) -> str:
        self.found.append((name, index))
        return name

    def __getattr__(self, name: str) -> Any:
        raise _NotACopy


def _copied_buffers(lowering: Any) -> Iterator[tuple[str, str]]:
    """Buffers that have the elements of another buffer or input, in another order in memory."""
    from torch._inductor.ir import ComputedBuffer, Pointwise
    from torch._inductor.virtualized import V

    with V.set_graph_handler(lowering):
        for name, buffer in lowering.name_to_buffer.items():
            if isinstance(buffer, ComputedBuffer) and isinstance(buffer.data, Pointwise):
                source = _copied(buffer.data, lowering)
                if source:
                    yield name, source


def _copied(data: Any, lowering: Any) -> str:
    import sympy
    from torch._inductor.virtualized import V

    index = [sympy.Symbol(f"place_{i}", integer=True, nonnegative=True) for i in range(len(data.ranges))]
    loads: Any = _Loads()
    try:
        with V.set_ops_handler(loads):
            data.inner_fn(index)
    except _NotACopy:
        return ""
    name, place = loads.found[0] if len(loads.found) == 1 else ("", 0)
    source = lowering.try_get_buffer(name) if name else None
    if source is None or list(source.get_size()) != list(data.ranges) or source.get_dtype() != data.dtype:
        return ""
    is_same = sympy.expand(source.get_layout().make_indexer()(index) - place) == 0
    return name if is_same else ""


def _items_of_results(lowering: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Buffers that are items of what an operator returns, with their `getitem` nodes."""
    from torch._inductor.ir import MultiOutput

    makers: dict[str, Any] = {}
    items: dict[str, Any] = {n: b for n, b in lowering.name_to_buffer.items() if isinstance(b, MultiOutput)}
    for buffer in items.values():
        node = known.get(getattr(buffer.get_origin_node(), "name", ""))
        if len(buffer.indices) == 1 and node is not None and node.target is operator.getitem:
            makers[buffer.inputs[0].get_name()] = node.args[0]
    for name, buffer in items.items():
        maker = makers.get(buffer.inputs[0].get_name())
        if maker is None or len(buffer.indices) != 1 or buffer.get_origin_node() is not None:
            continue
        wanted = buffer.indices[0][1]
        found = [n for n in maker.users if n.target is operator.getitem and n.args[1] == wanted]
        if len(found) == 1:
            yield name, found[0]


# -- patterns that are lowered as one operation ----------------------------------------------------------


def _noting_matches(original: Any) -> Any:
    """Notes the matched nodes with the node that replaces them, before they are erased.

    Inductor puts a function of its own in place of mm(a, b) + mm(c, d), which only its lowering can call.
    """

    def apply(entry: Any, match: Any, graph: Any, node: Any) -> Any:
        before = set(graph.nodes)
        try:
            found = _matched(match.nodes, match.output_node())
        except Exception:  # what it stood for stays unknown, which is reported where it is needed
            found = None
        done = original(entry, match, graph, node)
        if found is not None:
            for new in graph.nodes:
                places = None if new in before else _places(new, found[1])
                if places is not None:
                    new.meta[_PATTERN] = found[0], places
        return done

    return apply


def replaced_nodes(node: Any) -> tuple[Any, list[int]] | None:
    """The graph of what this node replaced, and which of its flat arguments are the inputs; None: unknown."""
    found: tuple[Any, list[int]] | None = node.meta.get(_PATTERN)
    return found


def _matched(nodes: Any, output: Any) -> tuple[Any, list[Any]]:
    """These nodes as a graph of their own, and the nodes that it is given."""
    from torch.fx import Graph

    inside = set(nodes)
    graph, copies, inputs = Graph(), dict[Any, Any](), list[Any]()
    for node in [n for n in output.graph.nodes if n in inside]:
        for given in node.all_input_nodes:
            if given not in copies:
                copies[given] = graph.placeholder(given.name)
                copies[given].meta.update(given.meta)
                inputs.append(given)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[output])
    return graph, inputs


def _places(node: Any, inputs: list[Any]) -> list[int] | None:
    """Where these are among the flat arguments of a node; None: one of them is not."""
    from torch.utils._pytree import tree_leaves

    given = {id(leaf): i for i, leaf in enumerate(tree_leaves((node.args, node.kwargs)))}
    return [given[id(each)] for each in inputs] if all(id(each) in given for each in inputs) else None
