"""Which nodes are wrong by themselves: all of them in one graph, each with inputs of its own.

One compilation tells what would take a search many. It is a guess all the same, and tried as any other part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch.fx import Graph, GraphModule, Node

from .candidates import Candidate, constant_of, copied, work_of
from .trials import run_compiled

_NEAR = 1e-3  # of the largest: this only chooses what is tried first


def apart(candidate: Candidate, names: Collection[str], values: Mapping[str, Any]) -> Candidate | None:
    """A graph in which each of these nodes is given what eager computes; its results are `names`."""
    graph, inputs, results = Graph(), list[Any](), dict[str, Node]()
    for node in work_of(candidate.module):
        if node.name not in names or not isinstance(values.get(node.name), torch.Tensor):
            continue
        given = {n: _value_of(candidate.module, n, values) for n in node.all_input_nodes}
        if any(v is None or isinstance(v, tuple | list) for v in given.values()):
            continue
        own = {n: graph.placeholder(f"{node.name}_{n.name}") for n in given}
        inputs += [copied(v) for v in given.values()]
        results[node.name] = graph.node_copy(node, own.__getitem__)
    if not results:
        return None
    graph.output(tuple(results.values()))
    module = GraphModule(candidate.module, _inputs_first(graph))
    return Candidate(module, inputs, candidate.dynamic, names=list(results))


def _value_of(module: GraphModule, node: Node, values: Mapping[str, Any]) -> Any:
    return constant_of(module, node) if node.op == "get_attr" else values.get(node.name)


def _inputs_first(graph: Graph) -> Graph:
    """A graph's inputs have to stand before all else."""
    first = next(iter(graph.nodes))
    for node in [n for n in graph.nodes if n.op == "placeholder"]:
        if node is not first:
            first.append(node)
            first = node
    return graph


def wrong_nodes(made: Candidate, values: Mapping[str, Any]) -> list[str]:
    """The names of those that do not compute what eager does; none if it cannot be compiled."""
    try:
        with (
            inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
            functorch_config.patch(enable_autograd_cache=False),
        ):  # keys of caches do not see what makes a compiler wrong
            results = run_compiled(made)
    except Exception:
        return []
    finally:
        torch._dynamo.reset()
    pairs = zip(made.names, results, strict=True)
    return [name for name, result in pairs if not _is_near(result, values[name])]


def _is_near(result: Any, value: torch.Tensor) -> bool:
    if not isinstance(result, torch.Tensor) or result.shape != value.shape or result.dtype != value.dtype:
        return False
    if not (value.is_floating_point() or value.is_complex()):
        return torch.equal(result, value)
    wide = torch.complex128 if value.is_complex() else torch.float64
    result, value = result.detach().to(wide), value.detach().to(wide)
    finite = value[value.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(result, value, rtol=_NEAR, atol=_NEAR * largest, equal_nan=True)
