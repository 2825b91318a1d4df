"""One launch beside its reference.

The reference is computed from a launch's inputs right before it, so nothing has to be kept: what a kernel
overwrites has been read by then. float64 is computed only where the result is not eager's bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any

import torch
from torch.fx import Node

from kernelscope.fingerprint.torch_bits import quiet
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of
from kernelscope.shadowing.graph_execution import Execution
from kernelscope.shadowing.reference.evaluate import CannotEvaluate, Reference
from kernelscope.shadowing.reference.launch_nodes import Output, Unit
from kernelscope.shadowing.reference.node_kinds import is_view, value_of
from kernelscope.shadowing.reference.rounding import coarsest_eps
from kernelscope.shadowing.reference.slices import concrete_shape, is_value_of, shaped
from kernelscope.shadowing.result import ShadowResult

from .judge import Verdict, judge

_POISON = {torch.bool: True, torch.uint8: 0xA5}


class Pending:
    """A launch that is under way: what to compare its outputs with."""

    __slots__ = ("alive", "eager", "execution", "index", "inputs", "kept", "reference", "unit", "wide")

    def __init__(
        self, index: int, execution: Execution, unit: Unit, alive: dict[str, Any], reference: Reference
    ) -> None:
        self.index = index
        self.execution = execution
        self.unit = unit
        self.alive = alive
        self.reference = reference
        self.inputs: dict[Node, Any] = {}
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []  # what is put back after the launch
        self.eager: dict[Node, Any] | None = None
        self.wide: dict[Node, Any] | None = None


class LaunchCheck:
    """Judges what launches compute; what is wrong goes into `result`."""

    def __init__(self, result: ShadowResult, *, offload: bool) -> None:
        self.result = result
        self._offload = offload  # references on the CPU
        self.poisons = True
        self._doubts: dict[tuple[int, str], Culprit] = {}  # by graph and buffer

    def close(self) -> None:
        for culprit in self._doubts.values():
            reason = f"it is not {culprit.node}, nor known what else; who reads it was not judged"
            self.result.leave_out(culprit.kernel_name, culprit.argument, reason)

    def before(
        self, index: int, launch: Launch, execution: Execution, unit: Unit, alive: dict[str, Any]
    ) -> Pending:
        """Compute what the launch should leave."""
        is_triton = launch.site.kernel.kind == "triton"
        reference = Reference(
            execution.lowered.module,
            execution.symbols,
            execution.in_place,
            triton=is_triton,
            offload=self._offload,
        )
        pending = Pending(index, execution, unit, alive, reference)
        for argument, reason in unit.unchecked:
            self.result.leave_out(launch.site.kernel.name, argument, reason)
        if not unit.given:
            self._read_inputs(launch, pending)
        if self.poisons:
            with quiet():  # so that autograd does not count it as a write
                _poison(launch)
        return pending

    def _read_inputs(self, launch: Launch, pending: Pending) -> None:
        execution, unit, reference = pending.execution, pending.unit, pending.reference
        inputs: dict[Node, Any] = {}
        for node, name in unit.inputs.items():
            value = shaped(pending.alive[name], node, execution.symbols)
            inputs[node] = value.cpu() if self._offload else value
        for node, piece in unit.carried.items():
            inputs[node] = execution.carried[piece][node]
        for node in unit.fresh:
            inputs[node] = _nothing(node, execution.symbols, self._offload)
        for output in unit.outputs:
            if output.node.op == "get_attr":  # a copy of it, in another layout
                inputs[output.node] = reference.constant(output.node)
        pending.inputs = inputs
        if unit.pieces:
            kept = {node: value.clone() for node, value in self._all_inputs(launch, pending).items()}
            for piece in unit.pieces:
                execution.carried[piece] = execution.carried.get(piece, {}) | kept
                execution.makers.setdefault(piece, []).append(launch.site.kernel.name)
        if unit.outputs and self.wants(launch, pending):
            self._compute(launch, pending)

    def wants(self, launch: Launch, pending: Pending) -> bool:
        """Whether a reference is needed for this launch."""
        return True

    def _compute(self, launch: Launch, pending: Pending) -> None:
        unit, inputs = pending.unit, pending.inputs
        try:
            pending.eager = pending.reference.same(unit.order, inputs)
            if self.poisons and _overwrites(launch, inputs.values()):
                pending.wide = pending.reference.double(unit.order, inputs)
                pending.inputs = {n: v.clone() for n, v in inputs.items() if isinstance(v, torch.Tensor)}
        except CannotEvaluate as error:
            for output in unit.outputs:
                self.result.leave_out(launch.site.kernel.name, output.argument, str(error))
            pending.eager = None

    def _all_inputs(self, launch: Launch, pending: Pending) -> dict[Node, torch.Tensor]:
        """All that this kernel was given, for who goes on with its unfinished results."""
        execution = pending.execution
        found = {
            node: shaped(value, node, execution.symbols)
            for arg in launch.site.args
            if arg.role != "out"
            and (node := execution.held(arg.wrapper_name)) is not None
            and isinstance(value := pending.alive.get(arg.wrapper_name), torch.Tensor)
        }
        for piece in {arg.wrapper_name for arg in launch.site.args} & execution.carried.keys():
            found |= execution.carried[piece]
        return found

    def after(self, launch: Launch, pending: Pending) -> None:
        """Compare what the launch left with what it should have."""
        execution, unit = pending.execution, pending.unit
        returned = returned_outputs(launch, unit)
        for output in unit.outputs:
            execution.holds[output.name] = output.held or output.node
            execution.carried.pop(output.name, None)
            is_returned = output.index is None
            made = returned.get(output.name) if is_returned else pending.alive.get(output.name)
            if unit.given:
                self.result.counts.given += 1
            elif pending.eager is not None:
                self._judge_output(launch, pending, output, made)
            if (
                output.name in execution.holds and not output.key
            ):  # else it is something else than was guessed
                self._note_returned(launch, pending, output, made)
        for name in unit.pieces:
            execution.holds.pop(name, None)
        execution.unread |= unit.unread
        execution.done |= {a.wrapper_name for a in launch.site.args if a.role in ("out", "inout")}
        for piece in list(execution.carried):  # as long as somebody may need it
            whole = execution.whole_of(piece)
            is_over = whole in execution.holds if whole else True
            if is_over and not execution.text.is_read_after(piece, launch.site.line):
                del execution.carried[piece]
        self.result.counts.narrow |= pending.reference.narrow

    def _note_returned(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        execution, node = pending.execution, output.held or output.node
        if isinstance(made, torch.Tensor) and is_value_of(node, made, execution.symbols):
            made = shaped(made, node, execution.symbols)
        else:
            made = None
        name = launch.site.kernel.name
        execution.returned.note(node, made, name, pending.index, pending.reference)

    def _judge_output(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        assert pending.eager is not None
        symbols = pending.execution.symbols
        eager = part_of(pending.eager, output)
        if not isinstance(made, torch.Tensor) or not isinstance(eager, torch.Tensor):
            self.result.leave_out(launch.site.kernel.name, output.argument, "it is not a tensor")
            return
        if made.numel() != eager.numel() or made.dtype != eager.dtype:
            node, buffer = f"{eager.dtype}{list(eager.shape)}", f"{made.dtype}{list(made.shape)}"
            reason = f"its FX node gives {node}, the buffer is {buffer}"
            self.result.leave_out(launch.site.kernel.name, output.argument, reason)
            return
        made = shaped(made, output.held or output.node, symbols).to(eager.device)

        def wide() -> torch.Tensor:
            if pending.wide is None:
                pending.wide = pending.reference.double(pending.unit.order, pending.inputs)
            return _like(part_of(pending.wide, output), made)

        generator = torch.Generator().manual_seed(0)

        def jittered() -> torch.Tensor:
            values = pending.reference.jittered(pending.unit.order, pending.inputs, generator)
            return _like(part_of(values, output), made)

        eps = coarsest_eps(_ancestors(output, pending.unit), [made.dtype])
        try:
            verdict = judge(made, eager.reshape(made.shape), wide, jittered, eps)
        except CannotEvaluate as error:
            self.result.leave_out(launch.site.kernel.name, output.argument, str(error))
            return
        if verdict.is_wrong and output.is_guess:
            self._doubt(launch, pending, output, verdict)
            return
        self._count(verdict)
        earlier = [(id(pending.execution.doubted), piece) for piece in set(pending.unit.carried.values())]
        doubts = [key for key in earlier if key in self._doubts]
        if not verdict.is_wrong:
            for key in doubts:
                del self._doubts[key]
        for culprit in [self._doubts[key] for key in doubts] if verdict.is_wrong else ():
            self.result.add(culprit)
        if verdict.is_wrong and not doubts:
            self.result.add(self._culprit(launch, pending, output, verdict))

    def _doubt(self, launch: Launch, pending: Pending, output: Output, verdict: Verdict) -> None:
        """Either the kernel is wrong, or it computes something else: who reads it will show."""
        execution, name = pending.execution, output.name
        culprit = self._culprit(launch, pending, output, verdict)
        self._doubts[id(execution.doubted), name] = culprit
        execution.doubted.add(name)
        execution.holds.pop(name, None)
        execution.carried[name] = {n: v.clone() for n, v in pending.inputs.items() if torch.is_tensor(v)}
        execution.makers.setdefault(name, []).append(launch.site.kernel.name)

    def _count(self, verdict: Verdict) -> None:
        self.result.counts.buffers += 1
        self.result.counts.bitwise += verdict.is_bitwise

    def _culprit(self, launch: Launch, pending: Pending, output: Output, verdict: Verdict) -> Culprit:
        unit = pending.unit
        return culprit_of(
            launch,
            pending.index,
            "wrong-kernel",
            verdict.reason,
            argument=output.argument,
            buffer=output.name,
            node=output.node.name,
            nodes=tuple(n.name for n in _ancestors(output, unit)),
            joined=tuple(name for name in unit.joined if name != launch.site.kernel.name),
            graph=pending.execution.name,
            where=verdict.where,
            numbers=verdict.numbers,
        )


def _poison(launch: Launch) -> None:
    """What holds nothing yet is filled, so that an element which the kernel forgets is seen."""
    for i in launch.uninitialised:
        if i not in launch.point.written:
            continue
        tensor = launch.flat[i]
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype in _POISON:
            tensor.fill_(_POISON[tensor.dtype])
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).min + 0x55)


def _overwrites(launch: Launch, inputs: Any) -> bool:
    """Whether the launch writes to memory that the reference still has to read."""
    written = {launch.flat[i].untyped_storage()._cdata for i in launch.point.written}
    tensors = (value for value in inputs if isinstance(value, torch.Tensor))
    return any(tensor.untyped_storage()._cdata in written for tensor in tensors)


def returned_outputs(launch: Launch, unit: Unit) -> Mapping[str, Any]:
    """By the wrapper's names for them."""
    found: dict[str, Any] = {}
    for output in unit.outputs:
        if output.index is None:
            found[output.name] = reduce(getitem, output.item, launch.result)
    return found


def part_of(values: Mapping[Node, Any], output: Output) -> Any:
    value = values[output.node]
    return value[output.key] if output.key and value is not None else value


def _nothing(node: Node, symbols: Mapping[str, Any], offload: bool) -> torch.Tensor:
    """In place of memory that holds nothing yet."""
    fake = value_of(node)
    device = "cpu" if offload else fake.device
    made = torch.empty(concrete_shape(fake, symbols), dtype=fake.dtype, device=device)
    return made.fill_(math.nan) if made.is_floating_point() else made.zero_()


def _like(value: Any, made: torch.Tensor) -> torch.Tensor:
    wide: torch.Tensor = value
    return wide.reshape(made.shape)


def _ancestors(output: Output, unit: Unit) -> list[Node]:
    """The part of the unit that this output is computed by."""
    members, needed = set(unit.order), {output.node, *output.writers}
    for each in reversed(unit.order):
        if each in needed:
            needed |= {n for n in each.all_input_nodes if n in members and n not in unit.inputs}
    return [each for each in unit.order if each in needed and not (is_view(each) and each is not output.node)]
