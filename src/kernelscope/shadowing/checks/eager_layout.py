"""Whether an operator gives another result for the memory layout that Inductor chose than for eager's.

The reference of a launch is computed from the tensors that the launch has. If an operator mishandles their
strides, it does so in the reference too. So the inputs are also laid out as eager would have them.

In a backward graph that is a guess: the strides which its nodes are known to have follow from the layouts in
which Inductor saved values in the forward (attention behind convolutions: in one that attention mishandles,
and that it is never given). There, a result is right that the operator also gives for contiguous inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.graph_walk import concrete_sizes
from kernelscope.shadowing.reference.layouts import depends_on_memory
from kernelscope.shadowing.reference.node_kinds import value_of
from kernelscope.shadowing.reference.small_errors.rounding import coarsest_eps

from .judge import judge
from .verdict_record import Verdict


class EagerLayout:
    """The inputs of one launch, as eager would have them, and what its operators make of them."""

    def __init__(
        self,
        order: Sequence[Node],
        inputs: Mapping[Node, Any],
        symbols: Mapping[str, Any],
        *,
        is_guess: bool = False,
    ) -> None:
        self._order, self._is_guess = order, is_guess
        self._changed = {} if any(map(depends_on_memory, order)) else _laid_out(inputs, symbols)
        self._given = inputs
        self._inputs = dict(inputs) | {node: value for node, value, _ in self._changed.values()}

    def differences(
        self, reference: Reference, eager: Mapping[Node, Any], outputs: Sequence[Node]
    ) -> Iterator[tuple[Node, Verdict]]:
        """The outputs that depend on the layout by more than rounding explains."""
        if not self._changed:
            return
        try:
            expected = reference.same(self._order, self._inputs)
        except CannotEvaluate:  # for the layout at hand it could be
            return
        for node in outputs:
            made, other = eager.get(node), expected.get(node)
            if not isinstance(made, torch.Tensor) or not isinstance(other, torch.Tensor):
                continue
            verdict = self._judged(reference, self._inputs, node, made, other)
            if (
                verdict is None or not verdict.is_wrong
            ):  # None: the launch is not judged, and that is reported
                continue
            if not (self._is_guess and self._is_as_contiguous(reference, node, made)):
                verdict.reason = self._reason(reference, node, other)
                yield node, verdict

    def _judged(
        self,
        reference: Reference,
        inputs: Mapping[Node, Any],
        node: Node,
        made: torch.Tensor,
        expected: torch.Tensor,
    ) -> Verdict | None:
        """What a launch made, by what its operators make of other inputs; None where that is unknown."""
        order, generator = self._order, torch.Generator().manual_seed(0)

        def wide() -> torch.Tensor:
            found: torch.Tensor = reference.double(order, inputs)[node]
            return found

        def jittered() -> torch.Tensor:
            found: torch.Tensor = reference.jittered(order, inputs, generator)[node]
            return found

        def unwritten() -> torch.Tensor | None:
            return reference.unwritten(order, inputs, expected, node)

        try:
            return judge(made, expected, wide, jittered, coarsest_eps(order, []), unwritten=unwritten)
        except CannotEvaluate:
            return None

    def _is_as_contiguous(self, reference: Reference, node: Node, made: torch.Tensor) -> bool:
        inputs = dict(self._given) | {n: value.contiguous() for n, value, _ in self._changed.values()}
        try:
            found = reference.same(self._order, inputs).get(node)
        except CannotEvaluate:
            return False
        verdict = None
        if isinstance(found, torch.Tensor):
            verdict = self._judged(reference, inputs, node, made, found)
        return verdict is not None and not verdict.is_wrong

    def _reason(self, reference: Reference, output: Node, expected: torch.Tensor) -> str:
        """Names the input whose layout changes the result by itself, or the first one where none does."""
        name = next((n for n in self._changed if self._matters(n, reference, output, expected)), "")
        name = name or next(iter(self._changed))
        _, value, strides = self._changed[name]
        eager = list(value.stride())
        chosen = f"the strides {list(strides)} that Inductor chose for {name}"
        return f"the result of the operator for {chosen} differs from that for eager's, {eager}"

    def _matters(self, name: str, reference: Reference, output: Node, expected: torch.Tensor) -> bool:
        if len(self._changed) == 1:
            return True
        node = self._changed[name][0]
        try:
            made = reference.same(self._order, self._inputs | {node: self._given[node]}).get(output)
        except CannotEvaluate:
            return False
        return isinstance(made, torch.Tensor) and not torch.equal(made, expected)


def _laid_out(
    inputs: Mapping[Node, Any], symbols: Mapping[str, Any]
) -> dict[str, tuple[Node, torch.Tensor, tuple[int, ...]]]:
    """By name: inputs whose strides differ from eager's, laid out as in eager, and the strides they have."""
    found = {}
    for node, value in inputs.items():
        fake = value_of(node)
        if not isinstance(fake, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        if fake.layout is not torch.strided or value.layout is not torch.strided:
            continue
        try:
            sizes, strides = concrete_sizes(fake.shape, symbols), concrete_sizes(fake.stride(), symbols)
        except KeyError:  # an unknown size
            continue
        if sizes != tuple(value.shape) or not value.numel() or _same(sizes, strides, value.stride()):
            continue
        if any(n > 1 and step == 0 for n, step in zip(sizes, strides, strict=True)):
            continue  # expanded: it cannot be written to
        other = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        found[node.name] = node, other.copy_(value), value.stride()
    return found


def _same(sizes: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    return all(n < 2 or a == b for n, a, b in zip(sizes, one, other, strict=True))
