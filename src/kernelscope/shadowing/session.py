"""Listens to every launch of compiled code while the program runs, and has it judged."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from kernelscope.events import CompactCall, Finding, GraphCall
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.fx_stages import Stage
from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.probes.gcu.graphs import variables as gcu_variables
from kernelscope.probes.launch import Capture, Kept, Launch, Planner
from kernelscope.probes.python_wrappers.graph_results import GraphResults
from kernelscope.shadowing.checks.launch_check import LaunchCheck, Pending
from kernelscope.shadowing.checks.memory_check import MemoryCheck
from kernelscope.shadowing.checks.stage_check import StageCheck
from kernelscope.shadowing.reference.launch_nodes import Unit, unit_of
from kernelscope.stages.records import Record

from .culprit import Culprit
from .generator_state import untouched_random_numbers
from .graph_execution import Execution, Function, read_function
from .result import ShadowResult

_EXECUTIONS_KEPT = 64
_KEYS = torch._C.DispatchKey
_AUTOCAST = torch._C.DispatchKeySet(_KEYS.AutocastCPU) | torch._C.DispatchKeySet(_KEYS.AutocastCUDA)


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that is wrong, with what was at hand when it was found."""

    culprit: Culprit
    module: Any = None  # the graph that was lowered
    inputs: Sequence[Any] | None = None  # that the graph was called with
    order: Sequence[Any] = ()  # the nodes that the kernel computes
    given: Mapping[Any, Any] = field(default_factory=dict)  # by node: what the kernel was given
    sizes: Mapping[str, Any] = field(default_factory=dict)


class Session:
    """Listens to every launch; what is wrong goes into `result`, and to `wrong` as soon as it is found."""

    def __init__(
        self,
        result: ShadowResult,
        *,
        offload: bool = False,
        launches: LaunchCheck | None = None,
        wrong: Callable[[Wrong], None] | None = None,
    ) -> None:
        """With `launches`, only that is done."""
        self.result = result
        self.results = GraphResults(self.graph_returned)  # to be installed by who attaches this
        self._wrong = wrong
        self._told = 0  # culprits
        self._inputs: dict[int, list[Any]] = {}  # by graph call, for who wants to be told
        self._launches = launches or LaunchCheck(result, offload=offload)
        self._memory = MemoryCheck(result)
        self._checks_all = launches is None
        self._lowered: dict[str, LoweredGraph] = {}  # by the wrapper's path
        self._functions: dict[str, Function] = {}
        self._units: dict[tuple[str, int, int], Unit] = {}
        self._executions: dict[int, Execution] = {}
        self._stages: list[Stage] = []  # since the last graph was lowered
        self._checks: dict[str, StageCheck] = {}  # by the wrapper's path, until its first execution
        self._unfollowed: set[str] = set()
        self._graphs: set[str] = set()
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
            self._checks[graph.path] = StageCheck(stages, graph, self.result)
            self._lowered[graph.path] = graph
            self._functions.pop(graph.path, None)
            self._units = {key: unit for key, unit in self._units.items() if key[0] != graph.path}
            for problem in graph.problems:
                self.result.notes.append(f"kernelscope could not read all that lowering knew: {problem}")

    def graph_returned(self, graph_call: int, results: Sequence[Any]) -> None:
        """Are these the values that its kernels computed?"""
        execution = self._executions.get(graph_call)
        if execution is None or not self._checks_all:
            return
        try:
            with self._apart():
                names = dict(enumerate(execution.text.results))
                for culprit in execution.returned.check(results, names, execution.name):
                    self.result.add(culprit)
                self._tell_wrong(graph_call, execution, None)
        except Exception:
            trace = traceback.format_exc(limit=-3).strip()
            self.result.leave_out(f"graph {execution.name}", "results", f"kernelscope failed: {trace}")

    # -- what the bus says -----------------------------------------------------------------------------

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        graph = graph_call.graph
        self.results.begun(graph_call.index)
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
            if graph.path not in self._functions:
                self._functions[graph.path] = read_function(lowered, graph.source)
            while len(self._executions) >= _EXECUTIONS_KEPT:
                oldest = next(iter(self._executions))
                del self._executions[oldest]
                self._memory.forget(oldest)
            self._executions[graph_call.index] = Execution(self._functions[graph.path], graph.name)
            self._memory.begin(graph_call.index)
            if (check := self._checks.get(graph.path)) is not None and self._checks_all:
                check.give(inputs)
            if self._wrong is not None:
                with self._apart():  # copies: a kernel may write to them
                    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
                self._inputs = {graph_call.index: copies}

    def before(self, launch: Launch) -> Pending | None:
        execution = self._executions.get(launch.graph_call)
        if execution is None or not (launch.point.is_wrappers or launch.site.kernel.producer == "gcu"):
            return None
        index = self.result.counts.launches
        self.result.counts.launches += 1
        if launch.captured:
            self.result.leave_out(launch.site.kernel.name, "*", "launched while a CUDA graph was captured")
            return None
        try:
            with self._apart():
                pending = self._prepare(index, launch, execution)
                self._tell_wrong(launch.graph_call, execution, None)
                return pending
        except Exception:
            self._say_own_fault(launch)
            return None

    def after(self, launch: Launch, pending: Pending) -> None:
        if launch.error is not None:
            return
        try:
            with self._apart():
                self._launches.after(launch, pending)
                if self._checks_all:
                    self._memory.after(pending.index, launch, pending.alive)
                self._tell_wrong(launch.graph_call, pending.execution, pending)
        except Exception:
            self._say_own_fault(launch)

    def _tell_wrong(self, graph_call: int, execution: Execution, pending: Pending | None) -> None:
        if self._wrong is None or len(self.result.culprits) <= self._told:
            return
        self._told = len(self.result.culprits)
        is_whole = execution is self._executions.get(graph_call)
        inputs = self._inputs.get(graph_call) if is_whole else None  # a body has others
        culprit = self.result.culprit
        assert culprit is not None
        module, sizes = execution.lowered.module, execution.symbols
        if pending is not None and culprit.verdict == "wrong-kernel":
            unit = pending.unit
            self._wrong(Wrong(culprit, module, inputs, unit.order, pending.inputs, sizes))
        else:
            self._wrong(Wrong(culprit, module, inputs, sizes=sizes))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Our own work: no gradient, no mode, no autocast, and the program's random numbers untouched."""
        # Not `quiet()` as a whole: a higher-order operator cannot run without the keys that it excludes.
        with (
            self._lock,
            BUS.mute(),
            torch.no_grad(),
            torch._C.DisableTorchFunction(),
            torch.utils._python_dispatch._disable_current_modes(),
            torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
            untouched_random_numbers(),
        ):
            yield

    def _say_own_fault(self, launch: Launch) -> None:
        trace = traceback.format_exc(limit=-3).strip()
        self.result.leave_out(launch.site.kernel.name, "*", f"kernelscope failed: {trace}")

    # -- before the launch -----------------------------------------------------------------------------

    def _prepare(self, index: int, launch: Launch, execution: Execution) -> Pending:
        is_gcu = launch.site.kernel.producer == "gcu"
        alive, functions = (gcu_variables(), []) if is_gcu else _variables(launch.site.file)
        execution.symbols |= {k: v for k, v in alive.items() if isinstance(v, int | float)}
        whole, execution = execution, execution.at(functions, launch.site.line)
        if execution is not whole and not execution.done:
            self._memory.enter(launch.graph_call, execution.text.variables)
        alive |= execution.renamed_inputs(alive)
        execution.holds |= {
            name: node
            for name, node in execution.lowered.views.items()
            if isinstance(alive.get(name), torch.Tensor)
        }
        check = self._checks.pop(launch.site.file, None)
        if check is not None and self._checks_all:
            check.run(alive, execution.symbols)
        key = launch.site.file, launch.site.line, len(execution.doubted)
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = unit_of(launch, execution, alive)
        if self._checks_all:
            self._look_at_memory(index, launch, execution, alive)
        return self._launches.before(index, launch, execution, unit, alive)

    def _look_at_memory(
        self, index: int, launch: Launch, execution: Execution, alive: dict[str, Any]
    ) -> None:
        self._memory.before(index, launch, execution, alive)

    def close(self) -> None:
        """The program is over."""
        self._launches.close()

    # -- what else a listener is asked -----------------------------------------------------------------

    @property
    def accepts_compact(self) -> bool:
        return False

    @property
    def planner(self) -> Planner | None:
        return None

    @property
    def wants_values(self) -> bool:
        return False  # it must compute with them while they are there

    @property
    def notes_have_ends(self) -> bool:
        return False

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        return lambda entry: None

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None: ...

    def mark(self, kind: str, text: str) -> None: ...

    def step(self) -> None: ...

    def compiled(self, record: Record) -> None: ...

    def capturing(self) -> Kept | None:
        return None

    def replayed(
        self, capture: Capture, epochs: Sequence[tuple[int, ...]], stream: int, graph_call: int
    ) -> None:
        for template in capture.templates:
            self.result.leave_out(template.site.kernel.name, "*", "replayed from a CUDA graph")

    def finding(self, finding: Finding) -> None:
        if finding.message not in self.result.notes:
            self.result.notes.append(finding.message)


def _variables(path: str) -> tuple[dict[str, Any], list[str]]:
    """The local variables of the wrapper that is running, and its functions, the innermost first."""
    found: dict[str, Any] = {}
    functions: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == path:
            found = dict(frame.f_locals) | found  # no name is used in two of its functions, but for `args`
            functions.append(frame.f_code.co_name)
        elif functions:
            break
        frame = frame.f_back
    return found, functions
