"""A graph of ATen operators on one side of a step: all that it returns and writes to its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.in_place import InPlace, find_writers
from kernelscope.shadowing.reference.node_kinds import (
    aten,
    base_of,
    is_copy,
    is_uninitialised,
    is_user_kernel,
    kernel_arguments,
    results_of,
    value_of,
    whole_of,
    writes,
)
from kernelscope.shadowing.reference.small_errors.rounding import coarsest_eps, keeps_signs_of_zeros

from .draws import Seeded, draws_unknown

_ATTEMPTS = 12  # each leaves out what one more operator that cannot be evaluated computes


class Side:
    """Evaluates its outputs; those that it cannot are in `left_out`, with the reason."""

    def __init__(
        self,
        graph: GraphModule,
        symbols: Mapping[str, Any],
        inputs: Mapping[str, Any],
        drawn: Mapping[str, Any],
    ) -> None:
        """`drawn` are random numbers, or seeds for them, by the name of the node that draws them."""
        self.nodes: list[Node] = list(graph.graph.nodes)
        self.writes = _writers(self.nodes)
        self.outputs: dict[str, Any] = {f"output {i}": n for i, n in enumerate(results_of(graph))}
        self.left_out: dict[str, str] = {}
        self.given = {n: inputs[n.name] for n in self.nodes if n.op == "placeholder" and n.name in inputs}
        known = {n: drawn[n.name] for n in self.nodes if n.name in drawn}
        seeds = {n: value.number for n, value in known.items() if isinstance(value, Seeded)}
        self.given |= {n: value for n, value in known.items() if n not in seeds}
        self._reference = Reference(graph, symbols, self.writes, triton=False, seeds=seeds)
        self._generator = torch.Generator().manual_seed(0)
        self._known: dict[str, dict[Node, Any]] = {}
        for node in self.nodes:
            target = node.args[0] if node.target is aten.copy_.default else None
            if isinstance(target, Node) and target.op == "placeholder":
                self.outputs[f"input {target.name}"] = node
        for base in self.writes.writers:
            if base.op == "placeholder":
                self.outputs[f"input {base.name}"] = base
        known_draws = {*self.given, *seeds}
        unknown = {n for n in self.nodes if whole_of(n) not in known_draws and draws_unknown(n)}
        for name in self.tensors if unknown else ():
            if drawing := next((n for n in self.order([name]) if n in unknown), None):
                self.left_out[name] = f"it depends on random numbers that {drawing.target} draws"

    @property
    def tensors(self) -> list[str]:
        return [name for name, node in self.outputs.items() if isinstance(node, Node)]

    def order(self, names: Sequence[str]) -> list[Node]:
        """All that these outputs need, with what is written on the way to what they read."""
        writers, needed = self.writes.writers, set[Node]()
        todo = [node for name in names if isinstance(node := self.outputs[name], Node)]
        todo += [writer for node in todo for writer in writers.get(base_of(node), ())]
        while todo:
            node = todo.pop()
            if node in needed or (node in self.given and node.op != "placeholder"):
                continue
            needed.add(node)
            todo += [*node.all_input_nodes]
            todo += [w for base, version in self.writes.needed_by(node) for w in writers[base][:version]]
        return [n for n in self.nodes if n in needed and n.op == "call_function"]

    @property
    def eps(self) -> float:
        return coarsest_eps(self.order([n for n in self.tensors if n not in self.left_out]), [])

    def signed_zeros(self, name: str) -> bool:
        """Whether the sign of its zeros is defined."""
        return all(map(keeps_signs_of_zeros, self.order([name])))

    def eager(self, name: str) -> Any:
        return self._value("eager", self._reference.same, name)

    def wide(self, name: str) -> Any:
        return self._value("wide", self._reference.double, name)

    def undefined(self, name: str) -> torch.Tensor | None:
        """Elements that come from uninitialised memory."""
        order = self.order([name])
        if not any(is_uninitialised(node) for node in order):
            return None
        return self._reference.undefined(order, self.given, self._known["eager"], self.outputs[name])

    def unwritten(self, name: str) -> torch.Tensor | None:
        """Elements that no operator wrote."""
        node = self.outputs[name]
        return self._reference.unwritten(self.order([name]), self.given, self.eager(name), node)

    def jittered(self, name: str) -> Any:
        """In float64, with small errors; other ones each time."""
        names = [n for n in self.tensors if n not in self.left_out]
        values = self._reference.jittered(self.order(names), self.given, self._generator)
        return values.get(self.outputs[name])

    def dtype(self, name: str) -> torch.dtype | None:
        """As the compiler noted it; None: it did not."""
        node = self.outputs[name]
        fake = value_of(node) if isinstance(node, Node) else None
        return fake.dtype if isinstance(fake, torch.Tensor) else None

    def _value(self, kind: str, run: Callable[[Any, Any], dict[Node, Any]], name: str) -> Any:
        node = self.outputs[name]
        if not isinstance(node, Node):
            return node
        return self._all(kind, run).get(node)

    def _all(self, kind: str, run: Callable[[Any, Any], dict[Node, Any]]) -> dict[Node, Any]:
        """The values of all outputs that can be evaluated, computed once."""
        for _ in range(_ATTEMPTS):
            if kind in self._known:
                break
            names = [n for n in self.tensors if n not in self.left_out]
            try:
                values = run(self.order(names), self.given)
                wanted = {node for node in self.outputs.values() if isinstance(node, Node)}
                self._known[kind] = {node: value for node, value in values.items() if node in wanted}
            except CannotEvaluate as error:
                bad = [n for n in names if error.node is None or error.node in self.order([n])]
                self.left_out |= dict.fromkeys(bad or names, str(error))
        return self._known.setdefault(kind, {})


def _written_inputs(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """Inputs that are written to, by operators that work in place: what is in them at the end is a result."""
    found: dict[Node, list[Node]] = {}
    for node in nodes:
        for target in writes(node):
            if (base := base_of(target)).op == "placeholder" and node not in found.get(base, ()):
                found.setdefault(base, []).append(node)
    return found


def _writers(nodes: Sequence[Node]) -> InPlace:
    """With the user's Triton kernels, which may write to all tensors that they are given."""
    found = find_writers(nodes)
    for node in nodes:
        if is_user_kernel(node):
            for part in kernel_arguments(node).values():
                if isinstance(part, Node) and isinstance(value_of(part), torch.Tensor):
                    found.writers.setdefault(base_of(part), []).append(node)
    for base, by in _written_inputs(nodes).items():
        if base not in found.writers and not all(is_copy(node) for node in by):
            found.writers[base] = by
    for by in found.writers.values():
        by.sort(key=found.place.__getitem__)
    return found
