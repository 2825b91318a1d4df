"""Whether a graph returns what its kernels computed, or something else: another buffer, other strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.in_place import InPlace
from kernelscope.shadowing.reference.node_kinds import base_of, is_view, results_of
from kernelscope.shadowing.steps.lines import frames_of
from kernelscope.shadowing.writes.digests import DigestQueue

Places = dict[Node, list[tuple[int, list[Node]]]]


def places_of(module: Any, in_place: InPlace) -> Places:
    """By node: which results of the graph have its value, through which views."""
    found: Places = {}
    for i, node in enumerate(results_of(module)):
        # What is written in the middle of the graph has other values later.
        if not isinstance(node, Node) or base_of(node) in in_place.writers:
            continue
        base, views = node, list[Node]()
        found.setdefault(base, []).append((i, []))
        while is_view(base) and isinstance(inner := base.args[0], Node):
            views = [base, *views]
            base = inner
            found.setdefault(base, []).append((i, views))
    return found


@dataclass(frozen=True, slots=True)
class Left:
    """What a kernel left for the graph to return."""

    digest: int  # its number in the queue
    kernel_name: str
    index: int  # of the launch
    node: Node


class Returned:
    """Of one graph call."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._left: dict[int, Left] = {}  # by result
        self._digests = DigestQueue()

    def wants(self, node: Node) -> bool:
        """Whether the graph returns its value, or a view of it."""
        return node in self._places

    def is_known(self, node: Node) -> bool:
        """Whether a launch left what the graph is to return of its value."""
        return all(i in self._left for i, _ in self._places.get(node, ()))

    def note(self, node: Node, made: Any, kernel_name: str, index: int, reference: Reference) -> None:
        """A launch left the value of this node."""
        for i, views in self._places.get(node, ()):
            self._left.pop(i, None)
            if not isinstance(made, torch.Tensor) or made.layout is not torch.strided:
                continue
            try:
                value = reference.same(views, {node: made})[views[-1]] if views else made
            except CannotEvaluate:
                continue
            if isinstance(value, torch.Tensor) and value.numel():
                with quiet():
                    (digest,) = self._digests.put([value])
                self._left[i] = Left(digest, kernel_name, index, (views or [node])[-1])

    def check(self, results: Sequence[Any], names: Mapping[int, str], graph: str) -> list[Culprit]:
        """The results that differ from what the kernels left for them."""
        found, digests = [], self._digests
        given = {
            i: result
            for i in self._left
            if i < len(results)
            and isinstance(result := results[i], torch.Tensor)
            and result.layout is torch.strided
        }
        with quiet():
            numbers = dict(zip(given, digests.put(list(given.values())), strict=True))
            wrong = [i for i, n in numbers.items() if digests.value(n) != digests.value(self._left[i].digest)]
        for i in wrong:
            left = self._left[i]
            reason = f"the graph does not return what {left.kernel_name} computed for output {i}"
            at, origin = (f"output {i}", names.get(i, ""), left.node.name), frames_of(left.node)
            found.append(
                Culprit(
                    "wrong-result", reason, left.index, "return", "wrapper", *at, graph=graph, origin=origin
                )
            )
        return found
