"""A graph with inputs, and the smaller ones that can be made of it.

Any part of a graph's nodes is a graph: a value that these nodes need and do not compute becomes an input with
the value that eager computes. So every candidate is complete, and has real inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.probes.compiler_steps.decompositions import functional_of

_WORK = ("call_function", "call_method")
_DRAWS = ("inductor_seeds", "inductor_random", "inductor_randint")


@dataclass(slots=True)
class Candidate:
    """One graph to try, with its inputs."""

    module: GraphModule
    inputs: list[Any]
    dynamic: bool = False
    note: str = ""  # how the values of its inputs were changed

    @property
    def size(self) -> int:
        return len(work_of(self.module))

    @property
    def code(self) -> str:
        return str(self.module.code).strip()

    @property
    def key(self) -> str:
        """The same for the same graph with inputs of the same layout."""
        inputs = (f"{layout_of(v)} {getattr(v, 'requires_grad', v)}" for v in self.inputs)
        parts = [self.code, str(self.dynamic), self.note, *inputs]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    @property
    def differentiates(self) -> bool:
        return any(isinstance(v, torch.Tensor) and v.requires_grad for v in self.inputs)

    def runs_in_eager(self, *, grad: bool = False) -> bool:
        try:
            with torch.set_grad_enabled(grad):
                # Not called: a graph that is called prints what it raises.
                self.module.forward(*[copied(v) for v in self.inputs])
        except Exception:
            return False
        return True


def work_of(module: GraphModule) -> list[Node]:
    """The nodes that count: those that compute, without inputs and without items of a tuple."""
    return [n for n in module.graph.nodes if n.op in _WORK and not _is_item(n)]


def _is_item(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem" and not isinstance(
        node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None, torch.Tensor
    )


def layout_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device}"


class _Values(Interpreter):
    """Runs a graph and keeps the value of each node."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}

    def run_node(self, node: Node) -> Any:
        result = super().run_node(node)
        if node.op != "output":
            self.values[node.name] = tree_map(copied, result)
        return result


def copied(value: Any) -> Any:
    """The same values in the same layout; a leaf, if it requires gradients."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad and value.is_floating_point())


def values_of(candidate: Candidate) -> dict[str, Any]:
    """What eager computes, by node."""
    runner = _Values(candidate.module)
    with torch.set_grad_enabled(candidate.differentiates):
        runner.run(*[copied(v) for v in candidate.inputs])
    return runner.values


def part_of(candidate: Candidate, kept: Collection[str], values: dict[str, Any]) -> Candidate | None:
    """The graph of these nodes alone; None if that is not a graph."""
    module = candidate.module
    wanted = {n for n in module.graph.nodes if n.name in kept or (_is_item(n) and n.args[0].name in kept)}
    given: dict[Node, None] = {}
    for node in wanted:
        given |= dict.fromkeys(n for n in node.all_input_nodes if n not in wanted)
    outside = {n for node in module.graph.nodes if node not in wanted for n in node.all_input_nodes}
    results = [n for n in module.graph.nodes if n in wanted and (n in outside or not n.users)]
    results = [r for r in results if isinstance(values.get(r.name), torch.Tensor)]
    if not results or any(isinstance(values.get(n.name), tuple | list) for n in given):
        return None
    graph, copies = Graph(), dict[Node, Node]()
    inputs: list[Any] = []
    for node in module.graph.nodes:
        if node in given:
            copies[node] = graph.placeholder(node.name)
            inputs.append(constant_of(module, node) if node.op == "get_attr" else values[node.name])
        elif node in wanted:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
            copies[node].target = _with_items(node)
    graph.output(tuple(copies[r] for r in results))
    made = GraphModule(module, graph)
    return Candidate(made, [copied(v) for v in inputs], candidate.dynamic, candidate.note)


def _with_items(node: Node) -> Any:
    """An operator that returns what its users take items of: `_foreach_add`, where it is `_foreach_add_`."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.returns or not node.users:
        return node.target
    return functional_of(node.target) or node.target


def constant_of(module: GraphModule, node: Node) -> Any:
    """A tensor that the graph holds; it becomes an input."""
    found: Any = module
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


def nothing() -> Candidate:
    """A graph that returns its input."""
    graph = Graph()
    given = graph.placeholder("x")
    graph.output((given,))
    return Candidate(GraphModule(torch.nn.Module(), graph), [torch.ones(2)])


def removable(candidate: Candidate) -> list[str]:
    """The nodes that a part may have; seeds of random numbers are always inputs."""
    return [n.name for n in work_of(candidate.module) if _DRAWS[0] not in str(n.target)]


def comparable(candidate: Candidate) -> list[str]:
    """The nodes whose kernels compute what eager does: eager draws other random numbers."""
    return [n.name for n in work_of(candidate.module) if not any(word in str(n.target) for word in _DRAWS)]


def of_module(module: GraphModule, inputs: Sequence[Any], *, dynamic: bool = False) -> Candidate:
    """A whole graph with real tensors, and its constants as inputs."""
    graph, copies, given = Graph(), dict[Node, Node](), iter(inputs)
    values: list[Any] = []
    nodes = list(module.graph.nodes)
    for node in [n for n in nodes if n.op in ("placeholder", "get_attr")]:
        is_input = node.op == "placeholder"
        copies[node] = graph.placeholder(node.name)
        values.append(next(given) if is_input else constant_of(module, node))
    for node in nodes:
        if node.op == "output":
            leaves = [copies[n] for n in tree_leaves(node.args[0]) if isinstance(n, Node)]
            graph.output(tuple(leaves))
        elif (written := _written_item(node)) is not None:
            copies[node] = copies[written]
        elif node not in copies:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    return Candidate(GraphModule(module, graph), [copied(v) for v in values], dynamic)


def _written_item(node: Node) -> Node | None:
    """Of an item of what returns nothing, the tensor that it is: one of the list that was written to."""
    source = node.args[0] if _is_item(node) else None
    if not isinstance(source, Node) or _with_items(source) is source.target:
        return None
    found = source.args[0][node.args[1]]  # type: ignore[index]
    return found if isinstance(found, Node) else None
