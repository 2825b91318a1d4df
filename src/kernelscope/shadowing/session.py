"""Judges each launch of a compiled graph while the program runs.

The reference is computed from a launch's inputs right before it, so nothing has to be kept: what a kernel
overwrites has been read by then. float64 is computed only where the result is not eager's bit by bit.
"""

from __future__ import annotations

import math
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
from ..probes.fx_stages import Stage
from ..probes.launch import Launch, Planner, Template
from ..probes.lowering import LoweredGraph
from .foreign_writes import Change, Watch
from .judge import Verdict, judge
from .nodes import is_view, value_of
from .reference import CannotEvaluate, Reference, coarsest_eps
from .result import Culprit, ShadowResult
from .stage_check import StageCheck
from .units import Execution, Output, Unit, concrete_shape, shaped, unit_of
from .wrapper_text import WrapperText, read_text

_EXECUTIONS_KEPT = 64
_LAUNCHES_KEPT = 4096
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

    def __init__(self, result: ShadowResult, *, offload: bool = False) -> None:
        self.result = result
        self._offload = offload  # references on the CPU
        self._lowered: dict[str, LoweredGraph] = {}  # by the wrapper's path
        self._texts: dict[str, WrapperText] = {}
        self._units: dict[tuple[str, int], Unit] = {}
        self._executions: dict[int, Execution] = {}
        self._watches: dict[int, Watch] = {}  # by graph call
        self._launched: dict[int, str] = {}  # names of the last kernels, by index
        self._stages: list[Stage] = []  # since the last graph was lowered
        self._checks: dict[str, StageCheck] = {}  # by the wrapper's path, until its first execution
        self._unfollowed: set[str] = set()
        self._graphs: set[str] = set()
        self._names: dict[int, str] = {}  # of graphs, by graph call
        self._lock = threading.RLock()

    def stage(self, stage: Stage) -> None:
        with self._lock:
            if stage.name == "pre-grad":
                self._stages.clear()  # of a graph that was never lowered
            self._stages.append(stage)

    def lowered(self, graph: LoweredGraph) -> None:
        with self._lock:
            # The backward graph has only its own passes: the joint ones were looked at in the forward graph.
            stages, self._stages = self._stages, []
            self._checks[graph.path] = StageCheck(stages, graph.path, self.result)
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
                oldest = next(iter(self._executions))
                del self._executions[oldest]
                self._watches.pop(oldest, None)
            self._executions[graph_call.index] = Execution(lowered, self._texts[graph.path])
            self._watches[graph_call.index] = Watch()
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
        check = self._checks.pop(launch.site.file, None)
        if check is not None:
            check.run(alive, execution.symbols)
        key = launch.site.file, launch.site.line
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = unit_of(launch, execution, alive)
        kind = launch.site.kernel.kind
        reference = Reference(
            execution.lowered.module, execution.symbols, triton=kind == "triton", offload=self._offload
        )
        pending = Pending(index, execution, unit, alive, reference)
        self._launched[index] = launch.site.kernel.name
        self._launched.pop(index - _LAUNCHES_KEPT, None)
        self._leave_out(launch, unit)
        self._look_at_reads(launch, pending)
        if not unit.given:
            self._read_inputs(launch, pending)
        _poison(launch)
        return pending

    def _look_at_reads(self, launch: Launch, pending: Pending) -> None:
        """Has somebody written to what this kernel is about to read, or nobody?"""
        execution, point = pending.execution, launch.point
        own = {launch.storages[place].id for _, place in point.outputs}  # filled by this launch itself
        for place, i in enumerate(point.tensors):
            storage = launch.storages[place]
            if i in launch.dead and i not in point.written and storage.id not in own and not storage.written:
                reason = "it is read, but nothing was ever written there"
                arg = launch.site.args[i]
                self.result.add(
                    self._told(
                        launch, pending.index, "uninitialised-read", reason, arg.name, arg.wrapper_name
                    )
                )
        watch = self._watches[launch.graph_call]
        held = _held(execution, pending.alive)
        watch.look_at(held, pending.index - 1)
        names = {arg.wrapper_name for arg in launch.site.args if arg.role in ("in", "inout")}
        reads = {name: held[name] for name in names if name in held}
        for change in watch.before(reads, pending.index):
            self.result.add(self._foreign(launch, pending, change))

    def _foreign(self, launch: Launch, pending: Pending, change: Change) -> Culprit:
        """Names the writer, where only one kernel can have been it."""
        suspects = [pending.index] if change.is_seen else list(range(change.since + 1, pending.index))
        names = [self._launched.get(i, "?") for i in suspects]
        passed = [a.name for a in launch.site.args if a.wrapper_name == change.name]
        if len(names) == 1:
            reason = f"{change.name} changed while {names[0]} ran, which does not declare to write to it"
            writer = names[0]
        else:
            told = ", ".join(names) or "nothing of this graph"
            reason = (
                f"{change.name} changed before {launch.site.kernel.name} read it, while one ran of: {told}"
            )
            writer = "unknown"
        index = suspects[0] if suspects else pending.index
        argument = passed[0] if change.is_seen and passed else ""
        return self._told(launch, index, "foreign-write", reason, argument, change.name, writer)

    def _told(
        self,
        launch: Launch,
        index: int,
        verdict: str,
        reason: str,
        argument: str,
        buffer: str,
        kernel_name: str = "",
    ) -> Culprit:
        site = launch.site
        return Culprit(
            verdict=verdict,
            reason=reason,
            index=index,
            kernel_name=kernel_name or site.kernel.name,
            kind=site.kernel.kind,
            argument=argument,
            buffer=buffer,
            phase=launch.phase,
            graph=self._names.get(launch.graph_call, ""),
            origin=site.origin,
            wrapper=f"{site.file}:{site.line}",
            source=site.kernel.source,
        )

    def _leave_out(self, launch: Launch, unit: Unit) -> None:
        for argument, reason in unit.unchecked:
            self.result.leave_out(launch.site.kernel.name, argument, reason)

    def _read_inputs(self, launch: Launch, pending: Pending) -> None:
        execution, unit = pending.execution, pending.unit
        inputs: dict[Node, Any] = {}
        for node, name in unit.inputs.items():
            value = shaped(pending.alive[name], node, execution.symbols)
            inputs[node] = value.cpu() if self._offload else value
        for node, piece in unit.carried.items():
            inputs[node] = execution.carried[piece][node]
        for node in unit.fresh:
            inputs[node] = _nothing(node, execution.symbols, self._offload)
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
            execution.holds[output.name] = output.held or output.node
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
        execution.unread |= unit.unread
        self._look_at_the_others(launch, pending)
        self.result.counts.narrow |= pending.reference.narrow

    def _look_at_the_others(self, launch: Launch, pending: Pending) -> None:
        written = [launch.flat[i] for i in launch.point.written] + list(launch.returned)
        alive = {k: v for k, v in pending.alive.items() if isinstance(v, torch.Tensor)}
        watch = self._watches[launch.graph_call]
        for change in watch.after(alive, written, pending.index):
            self.result.add(self._foreign(launch, pending, change))

    def _judge_output(self, launch: Launch, pending: Pending, output: Output, made: Any) -> None:
        assert pending.eager is not None
        symbols = pending.execution.symbols
        eager = _part(pending.eager, output)
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
        made = shaped(made, output.held or output.node, symbols).to(eager.device)

        def wide() -> torch.Tensor:
            if pending.wide is None:
                pending.wide = pending.reference.double(pending.unit.order, pending.inputs)
            return _like(_part(pending.wide, output), made)

        generator = torch.Generator().manual_seed(0)

        def jittered() -> torch.Tensor:
            values = pending.reference.jittered(pending.unit.order, pending.inputs, generator)
            return _like(_part(values, output), made)

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


def _held(execution: Execution, alive: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The live variables that hold a value which is known."""
    return {name: value for name in execution.holds if isinstance(value := alive.get(name), torch.Tensor)}


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


def _part(values: Mapping[Node, Any], output: Output) -> Any:
    value = values[output.node]
    return value[output.key] if output.key else value


def _nothing(node: Node, symbols: Mapping[str, Any], offload: bool) -> torch.Tensor:
    """In place of memory that holds nothing yet."""
    fake = value_of(node)
    device = "cpu" if offload else fake.device
    made = torch.empty(concrete_shape(fake, symbols), dtype=fake.dtype, device=device)
    return made.fill_(math.nan) if made.is_floating_point() else made.zero_()


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
