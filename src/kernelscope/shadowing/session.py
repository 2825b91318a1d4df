"""Listens to every launch of compiled code while the program runs, and has it judged."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from kernelscope.events import Finding, GraphCall
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.lowering import LoweredGraph
from kernelscope.probes.compiler_steps.fx_stages import Stage
from kernelscope.probes.gcu.graphs import variables as gcu_variables
from kernelscope.probes.launch import Capture, Launch
from kernelscope.probes.listener import Listener
from kernelscope.probes.python_wrappers.graph_results import GraphResults
from kernelscope.probes.python_wrappers.shaped_wrapper import DISPATCHER
from kernelscope.shadowing.checks.launch_check import LaunchCheck
from kernelscope.shadowing.checks.pending import Pending
from kernelscope.shadowing.program_state import without_function_modes
from kernelscope.shadowing.reference.launch_nodes import LaunchNodes, nodes_of
from kernelscope.shadowing.regions.copies import Snapshot
from kernelscope.shadowing.regions.region_check import RegionCheck
from kernelscope.shadowing.steps.inputs import CalledGraph
from kernelscope.shadowing.steps.steps_check import StepsCheck
from kernelscope.shadowing.writes.memory_check import MemoryCheck

from .culprit import Culprit
from .generator_state import untouched_random_numbers
from .graph_call_state import Function, GraphCallState, Known, read_function
from .result import ShadowResult

_UNSEEN = "was compiled before the block, or loaded from a cache; compile it inside the block"
_IN_CPP = (
    "calls its kernels from C++ (cpp_wrapper, AOTInductor), where shadow cannot check them; "
    "run the same code through torch.compile without cpp_wrapper"
)
_GRAPH_CALLS_KEPT = 64
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


class Session(Listener):
    """Listens to every launch; what is wrong goes into `result`, and to `wrong` as soon as it is found."""

    can_wait = True  # what is wrong need not be known before a graph is over

    def __init__(
        self,
        result: ShadowResult,
        *,
        offload: bool = False,
        launches: LaunchCheck | None = None,
        every: bool = False,
        wrong: Callable[[Wrong], None] | None = None,
    ) -> None:
        """With `launches`, nothing else is checked; with `every`, all executions of functions are."""
        self.result = result
        self.results = GraphResults(self.graph_returned)  # installed by `listening`
        self._launches = launches or LaunchCheck(result, offload=offload)
        # Installed by `listening`.
        self.regions = RegionCheck(lambda: self.result, self._steps_again, self._doubted, every=every)
        self._wrong = wrong
        self._reported = 0  # culprits, to `wrong`
        self._inputs: dict[int, list[Any]] = {}  # by graph call, for `wrong`
        self._memory = MemoryCheck()
        self.checks_all = launches is None
        self._lowered: dict[str, LoweredGraph] = {}  # by the wrapper's path
        self._functions: dict[str, Function] = {}
        self._nodes: dict[tuple[str, int, Known], LaunchNodes] = {}
        self._states: dict[int, GraphCallState] = {}
        self._stages: list[Stage] = []  # since the last graph was lowered
        self._checks: dict[str, StepsCheck] = {}  # by the wrapper's path
        self._unfollowed: set[str] = set()
        self._graphs: set[str] = set()
        self._lock = threading.RLock()

    def stage(self, stage: Stage) -> None:
        with self._lock, self._contained("noting a compiler stage"):
            if stage.name == "pre-grad":
                self._stages.clear()  # of a graph that was never lowered
            self._stages.append(stage)

    def lowered(self, graph: LoweredGraph) -> None:
        with self._lock, self._contained("noting a lowered graph"):
            # The backward graph has only its own passes: the joint ones were looked at in the forward graph.
            stages, self._stages = self._stages, []
            self._checks[graph.path] = StepsCheck(stages, graph)
            self._lowered[graph.path] = graph
            self._functions.pop(graph.path, None)
            self._nodes = {key: nodes for key, nodes in self._nodes.items() if key[0] != graph.path}
            self._memory.lowered(graph.path)
            for problem in graph.problems:
                self.result.fail("reading what lowering knows", problem.splitlines()[-1], problem)

    def graph_returned(self, graph_call: int, results: Sequence[Any]) -> None:
        """Check that these are the values that its kernels computed."""
        state = self._states.get(graph_call)
        if state is None or not self.checks_all:
            return
        with self._guarded(f"graph {state.name}", "results"):
            names = dict(enumerate(state.text.results))
            self.result.add(*self._memory.returned(graph_call))
            self.result.add(*state.returned.check(results, names, state.name))
            self._launches.returned(state, results)
            self._report(graph_call, state, None)

    def state_of(self, graph_call: int) -> GraphCallState | None:
        """What the variables of this graph call hold; None: it is not followed."""
        return self._states.get(graph_call)

    # -- called by the bus -----------------------------------------------------------------------------

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None:
        graph = graph_call.graph
        self.results.begun(graph_call.index)
        with self._lock, self._contained(f"the call of graph {graph.name or graph.path}"):
            lowered = self._lowered.get(graph.path)
            if lowered is None:
                name = graph.name or graph.path
                if name not in self._unfollowed:
                    self._unfollowed.add(name)
                    self.result.unshadowed.append(f"graph {name} {_UNSEEN if graph.path else _IN_CPP}")
                return
            self._graphs.add(graph.path)
            self.result.counts.graphs = len(self._graphs)
            if graph.path not in self._functions:
                self._functions[graph.path] = read_function(lowered, graph.source)
            while len(self._states) >= _GRAPH_CALLS_KEPT:
                oldest = next(iter(self._states))
                del self._states[oldest]
                self.result.add(*self._memory.returned(oldest))
            self._states[graph_call.index] = GraphCallState(self._functions[graph.path], graph.name)
            self._memory.begin(graph_call.index, graph.path, can_wait=self._wrong is None and self.can_wait)
            if self._wrong is not None:
                with self.apart():  # copies: a kernel may write to them
                    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
                self._inputs = {graph_call.index: copies}
        self._check_steps(graph_call.index, graph.path, inputs)

    def _check_steps(self, graph_call: int, path: str, inputs: Sequence[Any]) -> None:
        """Once for each graph, before its first launch."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return
        check = self._checks.get(path)
        if check is None or not self.checks_all:
            return
        with self._guarded("compiler steps"):
            self.regions.called.add(path, check.by_name(inputs))
        if not check.is_over:
            check.is_over = True
            with self._guarded("compiler steps"):
                check.run(inputs, self.result)
                self._report(graph_call, self._states[graph_call], None)

    def _steps_again(
        self, given: Snapshot, forward: Sequence[CalledGraph], backward: Sequence[CalledGraph]
    ) -> None:
        """A function is wrong later, or for the gradients that came in, and nothing else explains it."""
        behind = [check for each in backward if (check := self._checks.get(each.path)) is not None]
        gradients = {name: value for each in backward for name, value in each.inputs(given).items()}
        for each in forward:
            if (check := self._checks.get(each.path)) is not None:
                with self._guarded("compiler steps"):
                    self.result.add(*check.again(each.inputs(given), behind, gradients))

    def _doubted(self, launch: int) -> Culprit | None:
        return self._launches.doubts.blamed_since(launch) or self._launches.early.since(launch)

    def before(self, launch: Launch) -> Pending | None:
        state = self._states.get(launch.graph_call)
        if state is None or not (launch.point.is_wrappers or launch.site.kernel.producer == "gcu"):
            return None
        index = self.result.counts.launches
        self.result.counts.launches += 1
        if launch.captured:
            self.result.leave_out(launch.site.kernel.name, "*", "launched while a CUDA graph was captured")
            self.result.counts.unjudged_launches += 1
            return None
        with self._guarded(launch.site.kernel.name):
            pending = self._prepare(index, launch, state)
            self._report(launch.graph_call, state, None)
            return pending
        with self._guarded(launch.site.kernel.name):  # what it writes to is not known to hold anything
            state.lose(launch.flat[i] for i in launch.point.written)
            self._memory.lose(launch.graph_call)
        self.result.counts.unjudged_launches += 1
        return None

    def after(self, launch: Launch, pending: Pending) -> None:
        if launch.error is not None:
            if self.checks_all:
                self.regions.failed_launch.note(launch, pending.index, pending.state.name)
                self._look_once_more(launch, pending)
            return
        is_done = False
        with self._guarded(launch.site.kernel.name):
            is_planned = self.checks_all and self._memory.is_planned(launch.graph_call)
            if is_planned:  # judging waits for the GPU: enqueue the rest first
                self._memory.after(pending.index, launch, pending.alive)
            self._launches.after(launch, pending)
            if self.checks_all and not is_planned:
                self.result.add(*self._memory.after(pending.index, launch, pending.alive))
            self._report(launch.graph_call, pending.state, pending)
            is_done = True
        if not is_done:
            self._memory.lose(launch.graph_call)
        self.result.counts.unjudged_launches += pending.is_left_out or not is_done

    def _look_once_more(self, launch: Launch, pending: Pending) -> None:
        """The launch failed, and its graph with it."""
        try:
            with self.apart():
                self.result.add(*self._memory.failed(pending.index, launch, pending.alive))
        except Exception:  # a GPU on which a kernel failed may refuse everything
            name = launch.site.kernel.name
            self.result.note(f"Writes of the kernels before {name}, which failed, were not all checked.")

    def _report(self, graph_call: int, state: GraphCallState, pending: Pending | None) -> None:
        """Call `wrong` if there is a new culprit."""
        if self._wrong is None or len(self.result.culprits) <= self._reported:
            return
        self._reported = len(self.result.culprits)
        is_whole = state is self._states.get(graph_call)
        inputs = self._inputs.get(graph_call) if is_whole else None  # a body has others
        culprit = self.result.culprit
        assert culprit is not None
        module, sizes = state.lowered.module, state.symbols
        if pending is not None and culprit.verdict == "wrong-kernel":
            self._wrong(Wrong(culprit, module, inputs, pending.nodes.order, pending.inputs, sizes))
        else:
            self._wrong(Wrong(culprit, module, inputs, sizes=sizes))

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Our own work: no gradient, no mode, no autocast, and the program's random numbers untouched."""
        # Not `quiet()` as a whole: a higher-order operator cannot run without the keys that it excludes.
        with (
            self._lock,
            BUS.mute(),
            torch.no_grad(),
            without_function_modes(),
            _without_modes(),
            torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
            untouched_random_numbers(),
        ):
            yield

    @contextmanager
    def _contained(self, where: str) -> Iterator[None]:
        """What fails inside is reported and does not reach the program."""
        try:
            yield
        except Exception as error:
            self.result.fail(where, error)

    @contextmanager
    def _guarded(self, kernel_name: str, argument: str = "*") -> Iterator[None]:
        """Our own work, which never ends the program: where it fails, something is not checked."""
        try:
            with self.apart():
                yield
        except Exception as error:
            self.result.fail(kernel_name, error)
            self.result.leave_out(kernel_name, argument, f"kernelscope failed: {type(error).__name__}")

    # -- before the launch -----------------------------------------------------------------------------

    def _prepare(self, index: int, launch: Launch, state: GraphCallState) -> Pending:
        is_gcu = launch.site.kernel.producer == "gcu"
        alive, functions = (gcu_variables(), []) if is_gcu else _variables(launch.site.file)
        state.symbols |= {k: v for k, v in alive.items() if isinstance(v, int | float)}
        whole, state = state, state.at(functions, launch.site.line)
        if state is not whole and not state.done:
            self._memory.enter(launch.graph_call, state.text.variables)
        state.look_at(alive)
        key = launch.site.file, launch.site.line, state.known()
        nodes = self._nodes.get(key)
        if nodes is None:
            nodes = self._nodes[key] = nodes_of(launch, state, alive)
        if self.checks_all:
            found = self._memory.before(index, launch, state, alive)
            self.result.add(*(found if self._is_launched(launch, state) else ()))
        return self._launches.before(index, launch, state, nodes, alive)

    def _is_launched(self, launch: Launch, state: GraphCallState) -> bool:
        """Whether the kernel itself runs, so that the memory it reads matters."""
        return True

    def close(self) -> None:
        """The program is over."""
        with self._contained("the check of memory"), self.apart():
            self.result.add(*self._memory.close())
        self._launches.close()
        self.regions.close()

    def replayed(self, capture: Capture, stream: int, graph_call: int) -> None:
        for template in capture.templates:
            self.result.counts.launches += 1
            self.result.counts.unjudged_launches += 1
            self.result.leave_out(template.site.kernel.name, "*", "replayed from a CUDA graph")

    def finding(self, finding: Finding) -> None:
        if finding.kind == "recorder-error":
            first, _, trace = finding.message.partition("\n")
            where = first.removeprefix("kernelscope failed while ").partition(";")[0]
            self.result.fail(where, trace.splitlines()[-1] if trace else first, trace)
        elif finding.kind == "unseen-graph":
            if finding.message not in self.result.unshadowed:
                self.result.unshadowed.append(finding.message)
        else:
            self.result.note(finding.message)


def _without_modes() -> AbstractContextManager[Any]:
    has_modes = torch._C._len_torch_dispatch_stack()
    return torch.utils._python_dispatch._disable_current_modes() if has_modes else nullcontext()


def _variables(path: str) -> tuple[dict[str, Any], list[str]]:
    """The local variables of the wrapper that is running, and its functions, the innermost first."""
    found: dict[str, Any] = {}
    functions: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == path:
            found = dict(frame.f_locals) | found  # no name is used in two of its functions, but for `args`
            functions.append(frame.f_code.co_name)
        elif functions and frame.f_code.co_filename != DISPATCHER:
            break
        frame = frame.f_back
    return found, functions
