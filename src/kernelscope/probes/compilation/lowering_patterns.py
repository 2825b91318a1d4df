"""What a pattern that is lowered as one operation stood for: mm(a, b) + mm(c, d), a convolution with ReLU.

Inductor puts a function of its own in place of the matched nodes, which only its lowering can call. Before
they are erased, they are copied into a graph that can be evaluated.
"""

from __future__ import annotations

from typing import Any

APPLY = "torch._inductor.pattern_matcher:LoweringPatternEntry.apply"
_KEY = "kernelscope_pattern"  # in a node's meta


def noting_matches(original: Any) -> Any:
    """In place of `APPLY`: notes the matched nodes with the node that replaces them."""

    def apply(entry: Any, match: Any, graph: Any, node: Any) -> Any:
        before = set(graph.nodes)
        try:
            found = _copied(match.nodes, match.output_node())
        except Exception:  # what it stood for stays unknown, which is reported where it is needed
            found = None
        done = original(entry, match, graph, node)
        if found is not None:
            for new in graph.nodes:
                places = None if new in before else _places(new, found[1])
                if places is not None:
                    new.meta[_KEY] = found[0], places
        return done

    return apply


def replaced_nodes(node: Any) -> tuple[Any, list[int]] | None:
    """The graph of what this node replaced, and which of its flat arguments are the inputs; None: unknown."""
    found: tuple[Any, list[int]] | None = node.meta.get(_KEY)
    return found


def _copied(nodes: Any, output: Any) -> tuple[Any, list[Any]]:
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
