"""Compares what a launch leaves with its reference.

The reference is computed from a launch's inputs right before it, so nothing has to be kept: what a kernel
overwrites has been read by then. float64 is computed only where the result is not eager's bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of
from kernelscope.shadowing.graph_call_state import GraphCallState
from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.graph_walk import is_value_of, shaped
from kernelscope.shadowing.reference.launch_nodes import (
    IN_PARTS,
    LaunchNodes,
    Output,
    ancestors,
    given_values,
    not_given,
)
from kernelscope.shadowing.reference.node_kinds import is_uninitialised
from kernelscope.shadowing.reference.places import Memories, place_of
from kernelscope.shadowing.reference.small_errors.rounding import Rounding
from kernelscope.shadowing.result import ShadowResult
from kernelscope.shadowing.writes.early_writes import EarlyWrites, overwrite

from .eager_layout import EagerLayout
from .judge import judge, why_not_comparable
from .measure import is_equal
from .noted_draws import note_draw
from .pending import Pending, doubtful, leaves_out, made_outputs, part_of
from .pieces import Doubts, all_inputs, differ, found_apart, judged_results, made_by_part, made_up, maker_of
from .poison import is_poisoned, nothing_in, overwrites, poison
from .verdict_record import Verdict


class LaunchCheck:
    """Judges what launches compute; what is wrong goes into `result`."""

    needs_double = False  # float64 is computed for every launch, before it

    def __init__(self, result: ShadowResult, *, offload: bool) -> None:
        self.result = result
        self._offload = offload  # references on the CPU
        self.poisons = True
        self.doubts = Doubts()
        self.early = EarlyWrites()
        self._laid_out: set[tuple[str, int]] = set()  # sites whose layouts were compared with eager's

    def close(self) -> None:
        for culprit in self.doubts.open():
            reason = f"it does not hold {culprit.node} and cannot be identified; its readers were not checked"
            self.result.counts.unjudged_launches += 1
            self.result.leave_out(culprit.kernel_name, culprit.argument, reason)

    def before(
        self, index: int, launch: Launch, state: GraphCallState, nodes: LaunchNodes, alive: dict[str, Any]
    ) -> Pending:
        """Compute what the launch should leave."""
        reference = Reference(
            state.lowered.module, state.symbols, state.in_place, triton=launch.site.kernel.kind == "triton",
            offload=self._offload, line=launch.site.line, facts=state.facts,
        )  # fmt: skip
        pending = Pending(index, state, nodes, alive, reference)
        if state.doubted:
            pending.doubtful = state.doubted.intersection(given_values(launch, state))
        for argument, reason in nodes.unchecked:
            self._leave_out(launch, pending, argument, reason)
        self.early.look(launch, pending)
        if not nodes.given:
            self._read_inputs(launch, pending)
        # A loop fills memory row by row: what a launch does not write to is what it was.
        kept = {o.name for o in nodes.outputs if o.writers} & {*nodes.inputs.values()}
        if self.poisons:
            with quiet():  # so that autograd does not count it as a write
                for reason in poison(launch, kept):
                    self.result.note(reason)
        return pending

    def _read_inputs(self, launch: Launch, pending: Pending) -> None:
        state, nodes, reference = pending.state, pending.nodes, pending.reference
        inputs: dict[Node, Any] = {}
        memories = Memories(pending.alive, launch.flat)
        for node, name in nodes.inputs.items():
            found = (state.unread if name in state.unread else state.holds).read(name, memories)
            if found is None:
                self._leave_all_out(launch, pending, f"it needs {node.name}, whose memory is gone")
                return
            value = shaped(found, node, state.symbols)
            inputs[node] = value.cpu() if self._offload else value
        for node, piece in nodes.carried.items():
            inputs[node] = state.carried[piece][node]
        for node in nodes.fresh:
            inputs[node] = nothing_in(node, state.symbols, offload=self._offload)
        inputs |= made_up(nodes.unknown, 0, state.symbols, offload=self._offload)
        for output in nodes.outputs:
            if output.node.op == "get_attr":  # a copy of it, in another layout
                inputs[output.node] = reference.constant(output.node)
        pending.inputs = inputs
        if nodes.pieces or any(output.is_guess for output in nodes.outputs):
            pending.given = all_inputs(launch, state, memories)
            if overwrites(launch, pending.given.values()):
                pending.given = {node: value.clone() for node, value in pending.given.items()}
        if nodes.outputs and self.wants(launch, pending):
            self._compute(launch, pending)

    def wants(self, launch: Launch, pending: Pending) -> bool:
        """Whether a reference is needed for this launch."""
        return True

    def judging(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        """An output is about to be judged, for whoever wants more than the verdict."""

    def not_judged(self, launch: Launch, argument: str, reason: str) -> None:
        """An output is left out."""

    def _evaluate(self, launch: Launch, pending: Pending) -> dict[Node, Any]:
        """In eager; what depends on a node that cannot be evaluated is left out, the rest is not."""
        while True:
            try:
                return pending.reference.same(pending.nodes.order, pending.inputs)
            except CannotEvaluate as error:
                missing = leaves_out(pending, error.node)
                if not missing:
                    raise
                for output in missing:
                    self._leave_out(launch, pending, output.argument, str(error))

    def _compute(self, launch: Launch, pending: Pending) -> None:
        inputs = pending.inputs
        try:
            pending.eager = self._evaluate(launch, pending)
            if pending.nodes.unknown:
                self._leave_out_unknown(launch, pending, pending.eager)
            if launch.site.kernel.kind == "extern" and self.poisons:
                self._compare_layouts(launch, pending, pending.eager)
            is_overwritten = self.poisons and overwrites(launch, inputs.values())
            if is_overwritten or self.needs_double:
                pending.in_double()
            if is_overwritten:
                pending.inputs = {n: v.clone() for n, v in inputs.items() if isinstance(v, torch.Tensor)}
        except CannotEvaluate as error:
            self._leave_all_out(launch, pending, str(error))
            pending.eager = None

    def _leave_out_unknown(self, launch: Launch, pending: Pending, eager: Mapping[Node, Any]) -> None:
        """What the kernel was not given need not be known: of a slice of joined values, the others."""
        nodes, symbols, kept = pending.nodes, pending.state.symbols, pending.evaluated
        for which in (1, 2):
            values = made_up(nodes.unknown, which, symbols, offload=self._offload)
            again = pending.reference.same(nodes.order, pending.inputs | values)
            kept = [output for output in kept if not differ(part_of(eager, output), part_of(again, output))]
        others = [each for each in pending.evaluated if each not in kept]
        self.early.look(launch, pending, others)
        for output in others:
            self._leave_out(launch, pending, output.argument, not_given(nodes.unknown))
        outputs = [each for each in nodes.outputs if each in kept or each.name in pending.missing]
        pending.nodes = replace(nodes, outputs=outputs)

    def _compare_layouts(self, launch: Launch, pending: Pending, eager: Mapping[Node, Any]) -> None:
        """Once for each site: strides, and what an operator makes of them, are the same at every launch."""
        if (site := (launch.site.file, launch.site.line)) in self._laid_out:
            return
        self._laid_out.add(site)
        nodes, outputs = pending.nodes, {o.node: o for o in pending.evaluated if not o.key}
        is_backward = launch.phase == "backward"
        layout = EagerLayout(nodes.order, pending.inputs, pending.state.symbols, is_guess=is_backward)
        for node, verdict in layout.differences(pending.reference, eager, list(outputs)):
            self.result.add(self._culprit(launch, pending, outputs[node], verdict))

    def _leave_all_out(self, launch: Launch, pending: Pending, reason: str) -> None:
        for output in pending.evaluated:
            self._leave_out(launch, pending, output.argument, reason)

    def after(self, launch: Launch, pending: Pending) -> None:
        """Compare what the launch left with what it should have."""
        state, nodes = pending.state, pending.nodes
        made = made_outputs(launch, pending)
        overwrite(launch, pending)
        for output in nodes.outputs:
            state.holds.put(output.name, output.held or output.node, place_of(made[output.name]))
            state.carried.pop(output.name, None)
            if nodes.given:
                self.result.counts.given += 1
                note_draw(state, output.node, made[output.name])
            elif pending.eager is not None and output.name not in pending.missing:
                self._judge_output(launch, pending, output, made[output.name])
            else:
                self._count_unjudged(made[output.name])
            if output.name in state.holds and not output.key:  # else it is something else than was guessed
                self._note_returned(launch, pending, output.held or output.node, made[output.name])
        if pending.is_right and pending.eager is not None and not pending.is_left_out:
            self.doubts.settle(doubtful(pending))
        for name, node in nodes.unread.items():
            if self.poisons and not is_poisoned(stored := pending.alive.get(name)):
                state.unread.put(name, node, place_of(stored))
                if state.node_of(name, stored) is node and not state.returned.is_known(node):
                    self._note_returned(launch, pending, node, stored)
        for name in nodes.pieces:
            state.holds.put(name, None, place_of(pending.alive.get(name, launch.result)))
            self._carry(launch, pending, name)
        state.done |= {a.wrapper_name for a in launch.site.args if a.role in ("out", "inout")}
        for piece in list(state.carried):  # kept while it may still be read
            whole = state.whole_of(piece)
            is_over = whole in state.holds if whole else True
            if is_over and not state.text.is_read_after(piece, launch.site.line):
                del state.carried[piece]
        self.result.counts.narrow |= pending.reference.narrow

    def returned(self, state: GraphCallState, results: Sequence[Any]) -> None:
        """A graph is over: what it returns tells about buffers that no kernel has read."""
        for makers, is_wrong in judged_results(state, results, offload=self._offload):
            keys = [(id(state.doubted), maker.buffer) for maker in makers]
            if is_wrong:
                self.result.add(*(self.doubts.of(keys) or makers))
            else:
                self.doubts.settle(keys)

    def _leave_out(
        self, launch: Launch, pending: Pending, argument: str, reason: str, made: Any = None
    ) -> None:
        pending.is_left_out = True
        self.not_judged(launch, argument, reason)
        self.result.leave_out(launch.site.kernel.name, argument, reason)
        self._count_unjudged(made)

    def _count_unjudged(self, made: Any) -> None:
        if isinstance(made, torch.Tensor) and made.layout is torch.strided:
            self.result.counts.unjudged_bytes += made.nbytes

    def _note_returned(self, launch: Launch, pending: Pending, node: Node, made: Any) -> None:
        state = pending.state
        if not state.returned.wants(node):
            return
        is_whole = isinstance(made, torch.Tensor) and is_value_of(node, made, state.symbols)
        value = shaped(made, node, state.symbols) if is_whole else None
        state.returned.note(node, value, launch.site.kernel.name, pending.index, pending.reference)

    def _judge_output(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        assert pending.eager is not None
        eager = part_of(pending.eager, output)
        reason = why_not_comparable(made, eager)
        if reason:
            self._leave_out(launch, pending, output.argument, reason, made)
            return
        made = shaped(made, output.held or output.node, pending.state.symbols).to(eager.device)
        eager = eager.reshape(made.shape)
        self.judging(launch, pending, output, made)
        undefined = self._undefined(pending, output)
        if undefined is not None:
            undefined = undefined.reshape(made.shape)
            made = torch.where(undefined, eager, made)

        def shaped_as_made(values: Mapping[Node, Any]) -> torch.Tensor:
            value: torch.Tensor = part_of(values, output).reshape(made.shape)
            return value if undefined is None else torch.where(undefined, eager.to(value.dtype), value)

        generator = torch.Generator().manual_seed(0)

        def jittered() -> torch.Tensor:
            order = pending.nodes.order
            return shaped_as_made(pending.reference.jittered(order, pending.inputs, generator))

        rounding = pending.nodes.roundings.get(output.name)
        if rounding is None:
            rounding = pending.nodes.roundings[output.name] = Rounding.of(ancestors(output, pending.nodes))
        differing = pending.nodes.differing
        differs = made.device.type != "cpu" and output.name in differing
        try:
            verdict = judge(
                made, eager, lambda: shaped_as_made(pending.in_double()), jittered,
                rounding.eps(made.dtype), adds=rounding.adds, signed_zeros=rounding.signed_zeros,
                unwritten=lambda: self._unwritten(pending, output), differs=differs,
            )  # fmt: skip
            (differing.discard if verdict.is_bitwise else differing.add)(output.name)
        except CannotEvaluate as error:
            if not (differs and is_equal(made, eager)):  # then float64 was not needed
                self._leave_out(launch, pending, output.argument, str(error), made)
                return
            verdict = Verdict(False, is_bitwise=True)
        if verdict.is_wrong and output.is_guess:
            self._doubt(launch, pending, output, verdict)
            return
        self.result.counts.buffers += 1
        self.result.counts.bytes += made.nbytes
        self.result.counts.bitwise += verdict.is_bitwise
        if verdict.is_wrong:
            pending.is_right = False
            doubted = self.doubts.of(doubtful(pending))
            doubted = doubted or [self._culprit(launch, pending, output, verdict)]
            self.result.add(*found_apart(doubted, pending.state.wrong, self.result.note))
        elif verdict.suspect is not None:
            self.result.suspect(self._culprit(launch, pending, output, verdict.suspect))

    def _undefined(self, pending: Pending, output: Output) -> torch.Tensor | None:
        """The elements that have no value to compare with, because they come from uninitialised memory."""
        if output.key or pending.eager is None:
            return None
        nodes, order, inputs = pending.nodes, pending.nodes.order, pending.inputs
        if nodes.makes_memory is None:
            nodes.makes_memory = any(map(is_uninitialised, order))
        if not nodes.makes_memory:
            return None
        return pending.reference.undefined(order, inputs, pending.eager, output.node)

    def _unwritten(self, pending: Pending, output: Output) -> torch.Tensor | None:
        if output.key or pending.eager is None:
            return None
        order, inputs, value = pending.nodes.order, pending.inputs, pending.eager[output.node]
        return pending.reference.unwritten(order, inputs, value, output.node)

    def _doubt(self, launch: Launch, pending: Pending, output: Output, verdict: Verdict) -> None:
        """Either the kernel is wrong, or the guess at its node was: checking its readers decides."""
        state, name = pending.state, output.name
        pending.is_right = False
        read = doubtful(pending)
        self.doubts.add((id(state.doubted), name), self._culprit(launch, pending, output, verdict), read)
        state.doubted.add(name)
        state.holds.put(name, None, place_of(pending.alive.get(name)))
        pending.given |= {n: v for n, v in pending.inputs.items() if isinstance(v, torch.Tensor)}
        self._carry(launch, pending, name)

    def _carry(self, launch: Launch, pending: Pending, name: str) -> None:
        """This is not the value of a node: its readers need what its kernel was given."""
        state = pending.state
        copies = {node: value.clone() for node, value in pending.given.items()}
        state.carried[name] = state.carried.get(name, {}) | copies
        state.makers.setdefault(name, []).append(launch.site.kernel.name)
        state.pieces[name] = maker_of(launch, pending.index, state, name)

    def _culprit(self, launch: Launch, pending: Pending, output: Output, verdict: Verdict) -> Culprit:
        nodes = pending.nodes
        found = culprit_of(
            launch, pending.index, "wrong-kernel", verdict.reason,
            argument=output.argument, buffer=output.name, node=output.node.name,
            nodes=tuple(n.name for n in ancestors(output, nodes)),
            joined=tuple(name for name in nodes.joined if name != launch.site.kernel.name),
            graph=pending.state.name, where=verdict.where, numbers=verdict.numbers,
        )  # fmt: skip
        return made_by_part(found, pending.state, pending.alive) if output.index == IN_PARTS else found
