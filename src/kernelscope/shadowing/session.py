"""Judges each launch of a compiled graph while the program runs.

The reference is computed from a launch's inputs right before it, so nothing has to be kept: what a kernel
overwrites has been read by then. float64 is computed only where the result is not eager's bit by bit.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.fx import Node

from ..events import Brief, Finding, GraphCall
from ..fingerprint.hashes import quiet
from ..probes.bus import BUS
from ..probes.launch import Launch, Planner, Template
from ..probes.lowering import LoweredGraph
from .judge import Verdict, judge
from .nodes import is_view
from .reference import CannotEvaluate, Reference, coarsest_eps
from .result import Culprit, ShadowResult
from .units import Execution, Output, Unit, shaped, unit_of
from .wrapper_text import WrapperText, read_text

_EXECUTIONS_KEPT = 64
_POISON = {torch.bool: True, torch.uint8: 0xA5}


class Pending:
    """A launch that is under way: what to compare its outputs with."""

    __slots__ = ("alive", "eager", "execution", "index", "inputs", "reference", "unit", "wide")

    def __init__(
        self, index: int, execution: Execution, unit: Unit, alive: dict[str, Any], reference: Reference
    ) -> None:
        self.index = index
        self.execution = execution
        self.unit = unit
        self.alive = alive
        self.reference = reference
        self.inputs: dict[Node, Any] = {}
        self.eager: dict[Node, Any] | None = None
        self.wide: dict[Node, Any] | None = None


class Session:
    """Listens to every launch; what is wrong goes into `result`."""

    def __init__(self, result: ShadowResult) -> None:
        self.result = result
        self._lowered: dict[str, LoweredGraph] = {}  # by the wrapper's path
        self._texts: dict[str, WrapperText] = {}
        self._units: dict[tuple[str, int], Unit] = {}
        self._executions: dict[int, Execution] = {}
        self._unfollowed: set[str] = set()
        self._graphs: set[str] = set()
        self._names: dict[int, str] = {}  # of graphs, by graph call
        self._lock = threading.RLock()

    def lowered(self, graph: LoweredGraph) -> None:
        with self._lock:
            self._lowered[graph.path] = graph
            self._units = {key: unit for key, unit in self._units.items() if key[0] != graph.path}
            for problem in graph.problems:
                self.result.notes.append(f"kernelscope could not read all that lowering knew: {problem}")

    # -- what the bus says -----------------------------------------------------------------------------

    def graph_call(self, graph_call: GraphCall) -> None:
        graph = graph_call.graph
        with self._lock:
            lowered = self._lowered.get(graph.path)
            if lowered is None:
                name = graph.name or graph.path
                if name not in self._unfollowed:
                    self._unfollowed.add(name)
                    self.result.unshadowed.append(
                        f"graph {name} was compiled before, or came from a cache; compile it inside"
                    )
                return
            self._graphs.add(graph.path)
            self.result.counts.graphs = len(self._graphs)
            if graph.path not in self._texts:
                self._texts[graph.path] = read_text(graph.source, graph.path)
            while len(self._executions) >= _EXECUTIONS_KEPT:
                del self._executions[next(iter(self._executions))]
            self._executions[graph_call.index] = Execution(lowered, self._texts[graph.path])
            self._names[graph_call.index] = graph.name

    def before(self, launch: Launch) -> Pending | None:
        execution = self._executions.get(launch.graph_call)
        if execution is None or not launch.point.is_wrappers:
            return None
        index = self.result.counts.launches
        self.result.counts.launches += 1
        if launch.captured:
            self.result.leave_out(launch.site.kernel.name, "*", "launched while a CUDA graph was captured")
            return None
        try:
            with self._apart():
                return self._prepare(index, launch, execution)
        except Exception:
            self._say_own_fault(launch)
            return None

    def after(self, launch: Launch, pending: Pending) -> None:
        if launch.error is not None:
            return
        try:
            with self._apart():
                self._compare(launch, pending)
        except Exception:
            self._say_own_fault(launch)

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Our own work: no gradient, no mode, no autocast, and the program's random numbers untouched."""
        state = torch.get_rng_state() if not torch._C._functorch.peek_interpreter_stack() else None
        with self._lock, BUS.mute(), quiet():
            try:
                yield
            finally:
                if state is not None and not torch.equal(state, torch.get_rng_state()):
                    torch.set_rng_state(state)

    def _say_own_fault(self, launch: Launch) -> None:
        trace = traceback.format_exc(limit=-3).strip()
        self.result.leave_out(launch.site.kernel.name, "*", f"kernelscope failed: {trace}")

    # -- before the launch -----------------------------------------------------------------------------

    def _prepare(self, index: int, launch: Launch, execution: Execution) -> Pending:
        alive = _variables(launch.site.file)
        if not execution.symbols:
            execution.symbols = {k: v for k, v in alive.items() if isinstance(v, int | float)}
        key = launch.site.file, launch.site.line
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = unit_of(launch, execution, alive)
        kind = launch.site.kernel.kind
        reference = Reference(execution.lowered.module, execution.symbols, triton=kind == "triton")
        pending = Pending(index, execution, unit, alive, reference)
        self._leave_out(launch, unit)
        if not unit.given:
            self._read_inputs(launch, pending)
        _poison(launch)
        return pending

    def _leave_out(self, launch: Launch, unit: Unit) -> None:
        for argument, reason in unit.unchecked:
            self.result.leave_out(launch.site.kernel.name, argument, reason)

    def _read_inputs(self, launch: Launch, pending: Pending) -> None:
        execution, unit = pending.execution, pending.unit
        inputs: dict[Node, Any] = {}
        for node, name in unit.inputs.items():
            inputs[node] = shaped(pending.alive[name], node, execution.symbols)
        for node, piece in unit.carried.items():
            inputs[node] = execution.carried[piece][node]
        pending.inputs = inputs
        if unit.pieces:
            kept = {node: value.clone() for node, value in self._all_inputs(launch, pending).items()}
            for piece in unit.pieces:
                execution.carried[piece] = execution.carried.get(piece, {}) | kept
                execution.makers.setdefault(piece, []).append(launch.site.kernel.name)
        if not unit.outputs:
            return
        try:
            pending.eager = pending.reference.same(unit.order, inputs)
            if _overwrites(launch, inputs.values()):
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

    # -- after the launch ------------------------------------------------------------------------------

    def _compare(self, launch: Launch, pending: Pending) -> None:
        execution, unit = pending.execution, pending.unit
        returned = _returned(launch, unit)
        for output in unit.outputs:
            execution.holds[output.name] = output.node
            execution.carried.pop(output.name, None)
            if unit.given:
                self.result.counts.given += 1
            elif pending.eager is not None:
                made = launch.flat[output.index] if output.index is not None else returned.get(output.name)
                self._judge_output(launch, pending, output, made)
        for name in unit.assembled:
            self._judge_assembled(launch, pending, name)
        for name in unit.pieces:
            execution.holds.pop(name, None)
        self.result.counts.narrow |= pending.reference.narrow

    def _judge_output(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        assert pending.eager is not None
        symbols = pending.execution.symbols
        eager = pending.eager[output.node]
        if output.index is not None:
            made = pending.alive.get(output.name, made)
        if not isinstance(made, torch.Tensor) or not isinstance(eager, torch.Tensor):
            self.result.leave_out(launch.site.kernel.name, output.argument, "it is not a tensor")
            return
        if made.numel() != eager.numel() or made.dtype != eager.dtype:
            node, buffer = f"{eager.dtype}{list(eager.shape)}", f"{made.dtype}{list(made.shape)}"
            reason = f"its FX node gives {node}, the buffer is {buffer}"
            self.result.leave_out(launch.site.kernel.name, output.argument, reason)
            return
        made = shaped(made, output.node, symbols)

        def wide() -> torch.Tensor:
            if pending.wide is None:
                pending.wide = pending.reference.double(pending.unit.order, pending.inputs)
            return _like(pending.wide[output.node], made)

        generator = torch.Generator().manual_seed(0)

        def jittered() -> torch.Tensor:
            values = pending.reference.jittered(pending.unit.order, pending.inputs, generator)
            return _like(values[output.node], made)

        eps = coarsest_eps(_ancestors(output.node, pending.unit), [made.dtype])
        try:
            verdict = judge(made, eager.reshape(made.shape), wide, jittered, eps)
        except CannotEvaluate as error:
            self.result.leave_out(launch.site.kernel.name, output.argument, str(error))
            return
        self._count(verdict)
        if verdict.is_wrong:
            self.result.add(self._culprit(launch, pending, output, verdict))

    def _judge_assembled(self, launch: Launch, pending: Pending, name: str) -> None:
        """A buffer that several launches filled part by part: are the parts where they belong?"""
        execution = pending.execution
        node = execution.lowered.nodes[name]
        made = pending.alive.get(name)
        parts = execution.lowered.parts[name]
        inputs = {
            held: shaped(value, held, execution.symbols)
            for part in parts
            if (held := execution.holds.get(part)) is not None
            and isinstance(value := pending.alive.get(part), torch.Tensor)
        }
        execution.holds[name] = node
        if not isinstance(made, torch.Tensor) or not set(node.all_input_nodes) <= inputs.keys():
            return
        try:
            eager = pending.reference.same([node], inputs)[node]
        except CannotEvaluate:
            return
        output = Output(name, name, node, None)
        verdict = judge(
            shaped(made, node, execution.symbols), eager, lambda: eager.double(), lambda: eager.double(), 1e-7
        )
        self._count(verdict)
        if verdict.is_wrong:
            self.result.add(self._culprit(launch, pending, output, verdict))

    def _count(self, verdict: Verdict) -> None:
        self.result.counts.buffers += 1
        self.result.counts.bitwise += verdict.is_bitwise

    def _culprit(self, launch: Launch, pending: Pending, output: Output, verdict: Verdict) -> Culprit:
        site, unit = launch.site, pending.unit
        return Culprit(
            verdict="wrong-kernel",
            reason=verdict.reason,
            index=pending.index,
            kernel_name=site.kernel.name,
            kind=site.kernel.kind,
            argument=output.argument,
            buffer=output.name,
            node=output.node.name,
            nodes=tuple(n.name for n in _ancestors(output.node, unit)),
            joined=tuple(name for name in unit.joined if name != site.kernel.name),
            phase=launch.phase,
            graph=self._names.get(launch.graph_call, ""),
            where=verdict.where,
            numbers=verdict.numbers,
            origin=site.origin,
            wrapper=f"{site.file}:{site.line}",
            source=site.kernel.source,
        )

    # -- what else a listener is asked -----------------------------------------------------------------

    @property
    def notes_will_do(self) -> bool:
        return False

    @property
    def planner(self) -> Planner | None:
        return None

    @property
    def notes_have_ends(self) -> bool:
        return False

    @property
    def note(self) -> Callable[[Brief], Any]:
        return lambda entry: None

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None: ...

    def mark(self, kind: str, text: str) -> None: ...

    def step(self) -> None: ...

    def replayed(self, template: Template, replay: int, stream: int, graph_call: int) -> None:
        self.result.leave_out(template.site.kernel.name, "*", "replayed from a CUDA graph")

    def finding(self, finding: Finding) -> None:
        if finding.message not in self.result.notes:
            self.result.notes.append(finding.message)


def _variables(path: str) -> dict[str, Any]:
    """The local variables of the wrapper that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == path:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _poison(launch: Launch) -> None:
    """What holds nothing yet is filled, so that an element which the kernel forgets is seen."""
    for i in launch.dead:
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


def _returned(launch: Launch, unit: Unit) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for output in unit.outputs:
        if output.index is None:
            found[output.name] = launch.result if output.item is None else launch.result[output.item]
    return found


def _like(value: Any, made: torch.Tensor) -> torch.Tensor:
    wide: torch.Tensor = value
    return wide.reshape(made.shape)


def _ancestors(node: Node, unit: Unit) -> list[Node]:
    """The part of the unit that this node is computed by."""
    members, needed = set(unit.order), {node}
    for each in reversed(unit.order):
        if each in needed:
            needed |= {n for n in each.all_input_nodes if n in members and n not in unit.inputs}
    return [each for each in unit.order if each in needed and not (is_view(each) and each is not node)]
