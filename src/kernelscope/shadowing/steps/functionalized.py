"""The first node of a traced graph after which something else is in memory once its writes are functional.

A write through a view shows in the tensors that share memory with it, so these are looked at too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from kernelscope.shadowing.checks.judge import judge
from kernelscope.shadowing.reference.small_errors.rounding import eps_of, widen

from .traced_graphs import WithoutEffects

_BYTES_KEPT = 1 << 28
_writes_to = attrgetter("_version")  # how often a tensor, or a view of it, was written to
Plan = dict[str, list[str]]  # by node: the nodes whose values are kept once it has run
Run = Callable[
    [Callable[[GraphModule], Any], bool], Sequence[Any]
]  # with an interpreter, functionalized or not


class Kept(WithoutEffects):
    """Returns what was in memory after each node; without a plan, it makes one."""

    def __init__(self, graph: GraphModule, plan: Plan | None = None) -> None:
        super().__init__(graph)
        self.garbage_collect_values = False
        self.plan: Plan = {} if plan is None else plan
        self._makes_plan = plan is None
        self._bytes = 0
        self._values: list[torch.Tensor] = []
        self.after: list[str] = []  # by value that is returned: the node after which it was there

    def run(self, *args: Any) -> Any:  # type: ignore[override]
        super().run(*args)
        return self._values

    def run_node(self, n: Node) -> Any:
        if n.op in ("placeholder", "get_attr", "output"):
            return super().run_node(n)
        given = [t for each in n.all_input_nodes for t in _tensors(self.env.get(each))]
        versions = [*map(_writes_to, given)] if self._makes_plan else []
        result = super().run_node(n)
        if self._makes_plan:
            written = [t for t, count in zip(given, versions, strict=True) if _writes_to(t) != count]
            self._plan(n, result, {_memory(t) for t in written})
        for name in self.plan.get(n.name, ()):
            value = result if name == n.name else next(v for k, v in self.env.items() if k.name == name)
            for tensor in _tensors(value):
                self._values.append(tensor.detach().clone())
                self.after.append(n.name)
        return result

    def _plan(self, n: Node, result: Any, written: set[int]) -> None:
        chosen = {n: result}
        if written:
            chosen |= {k: v for k, v in self.env.items() if any(_memory(t) in written for t in _tensors(v))}
        for node, value in chosen.items():
            self._bytes += sum(t.numel() * t.itemsize for t in _tensors(value))
            if self._bytes <= _BYTES_KEPT:
                self.plan.setdefault(n.name, []).append(node.name)


def first_difference(graph: GraphModule, run: Run) -> Node | None:
    """None: nothing differs, or it cannot be told where."""
    kept: list[Kept] = []
    nodes: dict[str, Node] = {node.name: node for node in graph.graph.nodes}

    def keep(graph: GraphModule) -> Kept:
        kept.append(Kept(graph, kept[0].plan if kept else None))
        return kept[-1]

    try:
        eager, functional = run(keep, False), run(keep, True)
    except Exception:  # the whole graph ran, but its parts cannot be looked at
        return None
    for one, other, name in zip(eager, functional, kept[0].after, strict=False):
        if differ(one, other):
            return nodes[name]
    return None


def differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is not type(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    eps = eps_of(one.dtype) or eps_of(torch.float32)
    wide = partial(widen, one)
    return judge(other, one, wide, wide, eps).is_wrong


def _tensors(value: Any) -> list[torch.Tensor]:
    return [part for part in tree_leaves(value) if isinstance(part, torch.Tensor)]


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.layout == torch.strided else 0
