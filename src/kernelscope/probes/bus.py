"""The one way from probes to recordings.

Probes are installed once per process and emit here; each open recording listens. What is a fact of the
process (storages, the current graph, autotuning going on) is kept here; what a recording wants to know
about it is the recording's own.
"""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic_ns
from typing import Any, TypeVar

import torch

from kernelscope.events import Arg, CompactCall, Finding, Graph, GraphCall, Kernel, Phase, Site, SteadySite
from kernelscope.stages.records import Record

from .describe import describe, returned_tensors
from .launch import Bystander, Capture, GraphPlan, Launch, LaunchPoint, Listener, Planner, Template
from .storages import Storages

NOT_WRITTEN = "not written"
_modes = torch._C._len_torch_function_stack
_UNSEEN_CAPTURE = Capture()  # it began before anybody listened

_Result = TypeVar("_Result")


class _ThreadState(threading.local):
    muted = 0  # the recorder's own work, autotuning, compilation
    graph_call = -1
    execution: Any = None  # of a graph whose fingerprints are planned
    plan: GraphPlan | None = None  # that made it
    in_graph = 0
    backward = False
    optimizer = 0
    launch: Launch | None = None
    opaque = 0  # launches of the user's own code that are over: each may have written to anything


class Bus:
    """Fans what probes see out to the open recordings."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.bystanders: tuple[Bystander, ...] = ()
        self.storages = Storages()
        self.here = _ThreadState()
        self.capture: Capture | None = None  # the CUDA graph that is being captured
        self.accepts_compact = False  # no recording wants more of a steady launch than a note
        self.notes_have_ends = False  # what a note returns is to be called after the launch
        self.profiler = 0  # the number of the profiler of torch's that is at work; 0 when none is
        self._profilers = itertools.count(1)
        self.profiled_from = 0  # graph calls before this one began without it
        self.planner: Planner | None = None  # the only recording, if its hashes can be planned
        self.note: Callable[[CompactCall], Any] = _ignore
        self.steady_sites: dict[int, SteadySite] = {}  # by the number that a note has for it
        self._steady_ids = itertools.count()
        self.executing = 0  # graphs; one of them may outlast the recording that it began under
        self.before_capture: Callable[[], None] | None = None
        self.after_detach: Callable[[Listener], None] | None = None
        self._graph_calls = itertools.count()
        self._graph_calls_begun = 0
        self.site_ids = itertools.count()
        self._kernels: dict[tuple[str, str, str], Kernel] = {}
        self._kernel_ids = itertools.count()
        self._lock = threading.Lock()

    def attach(self, listener: Listener) -> int:
        """From which graph call on it hears of everything."""
        with self._lock:
            # Before it is among them: a launch that finds it there must not believe that notes will do.
            self.accepts_compact = False
            self.listeners = (*self.listeners, listener)
            self.refresh()
            return self._graph_calls_begun

    def detach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            self.refresh()
            if not self.listeners:
                self.storages.clear()
                self._kernels = {}
                if not self.executing:
                    self.steady_sites = {}
        if self.after_detach is not None:
            try:
                self.after_detach(listener)
            except Exception:
                listener.finding(own_fault("letting go of CUDA graphs, which may still take fingerprints"))

    def forget(self) -> None:
        """In a forked child: nobody listens, and the weak references are its own copies."""
        self.listeners = ()
        self.bystanders = ()
        self.accepts_compact, self.planner, self.note, self.profiler = False, None, _ignore, 0
        self.steady_sites, self.executing = {}, 0
        self.storages = Storages()
        self.here = _ThreadState()
        self._lock = threading.Lock()

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Nothing that happens inside, on this thread, is the program's own."""
        here = self.here
        here.muted += 1
        try:
            yield
        finally:
            here.muted -= 1

    def kernel(self, name: str, kind: str, producer: str, source: str = "", source_hash: str = "") -> Kernel:
        key, kernels = (name, kind, source_hash), self._kernels
        known = kernels.get(key)
        if known is None:
            made = Kernel(next(self._kernel_ids), name, kind, producer, source, source_hash)
            known = kernels.setdefault(key, made)  # another thread may have been faster
        return known

    def number(self, steady: SteadySite) -> int:
        """What a note calls this place."""
        number = next(self._steady_ids)  # never another one's again
        self.steady_sites[number] = steady
        return number

    def refresh(self) -> None:
        """Whether every recording can do with notes may have changed."""
        listeners = self.listeners
        self.accepts_compact = (
            bool(listeners) and self.capture is None and all(each.accepts_compact for each in listeners)
        )
        self.planner = None
        # A range in a profiler's trace has an end.
        self.notes_have_ends = bool(self.profiler) or any(each.notes_have_ends for each in listeners)
        notes = [each.note for each in listeners]
        self.note = notes[0] if len(notes) == 1 else _all_of(notes)
        if len(listeners) == 1 and self.capture is None and not self.profiler:
            self.planner = listeners[0].planner

    def profiled(self, is_on: bool) -> None:
        """A profiler of torch's starts, or has stopped: from each graph's next execution on it is heard."""
        self.profiler = next(self._profilers) if is_on else 0
        self.profiled_from = self._graph_calls_begun
        self.refresh()

    def capturing(self, capture: Capture | None) -> None:
        """A CUDA graph's capture begins, or with None has ended."""
        self.capture = capture
        self.refresh()
        if capture is None:
            return
        if self.before_capture is not None:
            self.before_capture()
        for listener in self.listeners:
            try:
                kept = listener.capturing()
            except Exception:
                listener.finding(own_fault("preparing for a CUDA graph"))
            else:
                if kept is not None:
                    capture.kept[listener] = kept

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        """A compiled graph raised; if a noted launch did it, its note stands last and has that line."""
        for listener in self.listeners:
            listener.note_failed(graph_call, line, error)

    def graph_call(self, graph: Graph, phase: Phase, stream: int, inputs: Sequence[Any] = ()) -> int:
        """A compiled graph starts to execute, with these inputs."""
        call = GraphCall(next(self._graph_calls), graph, threading.get_ident(), stream, phase)
        self._graph_calls_begun = call.index + 1
        for listener in self.listeners:
            listener.graph_call(call, inputs)
        return call.index

    def replayed(self, capture: Capture) -> None:
        """A CUDA graph was replayed: each launch of its capture has been enqueued once more."""
        stream = torch.cuda.current_stream().cuda_stream
        epochs = []
        for template in capture.templates:
            epochs.append(tuple([storage.epoch for storage in template.storages]))
            for storage in template.written:
                storage.epoch += 1
        for listener in self.listeners:
            try:
                listener.replayed(capture, epochs, stream, self.here.graph_call)
            except Exception:
                listener.finding(own_fault("recording the replay of a CUDA graph"))
        capture.replays += 1

    def finding(self, finding: Finding) -> None:
        for listener in self.listeners:
            listener.finding(finding)

    def compiled(self, record: Record) -> None:
        """The compiler did something."""
        for listener in self.listeners:
            listener.compiled(record)

    def mark(self, kind: str, text: str) -> None:
        for listener in self.listeners:
            listener.mark(kind, text)

    def step(self) -> None:
        for listener in self.listeners:
            listener.step()

    def pass_by(self, what: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run an operator that launches nothing, for those who list it all the same."""
        if not self.bystanders:
            return func(*args, **kwargs)
        told = self._tell(func, [partial(b.passing, what, func, args, kwargs) for b in self.bystanders])
        result = func(*args, **kwargs)
        self._tell(func, [partial(t, result) for t in told if t is not None])
        return result

    def unwrapped(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        """A subclass is about to take an operator apart."""
        self._tell(func, [partial(b.unwrapping, func, types, args, kwargs) for b in self.bystanders])

    def _tell(self, func: Any, listeners: list[Callable[[], Any]]) -> list[Any]:
        answers = []
        for listener in listeners:
            try:
                answers.append(listener())
            except Exception:
                self.finding(own_fault(f"looking at {func}"))
        return answers

    def phase(self) -> Phase:
        here = self.here
        if here.optimizer:
            return "optimizer"
        if here.in_graph:
            return "backward" if here.backward else "forward"
        if torch._C._current_autograd_node() is not None:
            return "backward"
        return "forward" if torch.is_grad_enabled() else "other"

    def run(
        self,
        point: LaunchPoint,
        flat: Any,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Launch, and let every recording see it before and after."""
        here = self.here
        try:
            if _modes():
                launch = unseen(self._begin, point, flat, func, args, kwargs)
            else:
                launch = self._begin(point, flat, func, args, kwargs)
        except Exception:
            self.finding(own_fault(f"looking at the arguments of {point.site.kernel.name}"))
            return func(*args, **kwargs)
        here.launch = launch
        here.muted += point.is_leaf
        try:
            launch.result = launch.func(*args, **kwargs)  # a listener may have put another in its place
        except BaseException as error:
            launch.error = error
            raise
        finally:
            here.muted -= point.is_leaf
            here.launch = launch.outer
            if _modes():
                unseen(self._end, launch)
            else:
                self._end(launch)
            launch.error = None  # with its traceback it would be a cycle that keeps the arguments alive
        return launch.result

    def _begin(self, point: LaunchPoint, flat: Any, func: Any, args: Any, kwargs: Any) -> Launch:
        here, launch = self.here, Launch()
        launch.point, launch.flat, launch.func, launch.args, launch.kwargs = point, flat, func, args, kwargs
        launch.site = point.site
        launch.result, launch.error, launch.returned = None, None, []
        launch.outer = here.launch
        launch.graph_call = here.graph_call
        launch.phase = self.phase()
        launch.start_ns = kwargs["started_ns"] if point.is_past else monotonic_ns()
        launch.stream, captured = _stream(point, kwargs) if point.cuda_index >= 0 else (0, False)
        launch.captured = (self.capture or _UNSEEN_CAPTURE) if captured else None
        listeners = self.listeners  # before asking whether notes will do
        if self.accepts_compact and point.steady is not None:
            launch.is_tracked, launch.storages, launch.uninitialised = False, [], point.steady.uninitialised
            launch.storage_ids = launch.epochs = launch.offsets = ()
        else:
            launch.is_tracked = True
            self._look_at_tensors(launch, point, flat)
        launch.calls = {}
        for listener in listeners:
            try:
                launch.calls[listener] = listener.before(launch)
            except Exception:
                listener.finding(own_fault(f"recording {point.site.kernel.name}"))
        return launch

    def _look_at_tensors(self, launch: Launch, point: LaunchPoint, flat: Any) -> None:
        """A recorded launch spends most of its time here, so one loop does all there is to do."""
        found, ids, epochs, offsets, uninitialised = [], [], [], [], []
        known, storages = self.storages.known, self.storages
        for i in point.tensors:
            tensor = flat[i]
            storage = known(tensor.untyped_storage()._cdata) or storages.of(tensor)
            found.append(storage)
            ids.append(storage.id)
            epochs.append(storage.epoch)
            offsets.append(tensor.storage_offset())
            if storage.uninitialised and not storages.is_live(
                tensor, storage, reading=i not in point.written
            ):
                uninitialised.append(i)
        launch.storages = found
        launch.storage_ids, launch.epochs, launch.offsets = tuple(ids), tuple(epochs), tuple(offsets)
        launch.uninitialised = tuple(uninitialised)

    def _end(self, launch: Launch) -> None:
        try:
            self._complete(launch)
        except Exception:
            self.finding(own_fault(f"completing {launch.site.kernel.name}"))
        for listener, call in launch.calls.items():
            if call is None:
                continue
            try:
                listener.after(launch, call)
            except Exception:
                listener.finding(own_fault(f"recording {launch.site.kernel.name}"))
        if launch.captured is not None and launch.captured is self.capture and launch.error is None:
            self.capture.templates.append(Template(launch))

    def _complete(self, launch: Launch) -> None:
        point = launch.point
        self.here.opaque += point.is_opaque  # whether or not a recording wants to hear of it
        if launch.is_tracked:
            for i, place in point.outputs:
                self.storages.wrote(launch.flat[i], launch.storages[place])
                if point.is_pending:
                    self.storages.born(launch.flat[i], under_way=True)
        if launch.error is not None:
            return
        seal, point.seal = point.seal, None
        if seal is not None:
            point.site = seal(point.site, launch)
        launch.site = self._with_returns(launch) if point.returns else point.site
        if point.is_wrappers and point.is_static and point.steady is None and launch.is_tracked:
            point.steady = SteadySite(launch.site, launch.uninitialised)

    def _with_returns(self, launch: Launch) -> Site:
        point = launch.point
        if id(launch.result) in map(id, launch.flat):  # out=, or in place
            return point.site
        given = {id(value) for value in launch.flat}
        named = [(n, t) for n, t in returned_tensors(launch.result, point.return_names) if id(t) not in given]
        launch.returned = [tensor for _, tensor in named]
        site = self._site_returning(launch, named)
        if not launch.is_tracked:
            return site
        for arg, tensor in zip(site.args[len(point.site.args) :], launch.returned, strict=True):
            if arg.tensor is None or not arg.tensor.unread:
                storage = self.storages.of(tensor)
                storage.epoch += 1
                launch.storages.append(storage)
            elif arg.tensor.unread == NOT_WRITTEN:
                pending = point.is_pending
                self.storages.born(tensor, under_way=pending, left_uninitialised=not pending)
        return site

    def _site_returning(self, launch: Launch, named: list[tuple[str, torch.Tensor]]) -> Site:
        point = launch.point
        if point.is_static and point.sealed:
            return next(iter(point.sealed.values()))
        uninitialised = point.uninitialised_returns(launch) if point.uninitialised_returns else ()
        returns = tuple(
            Arg(name, "out", describe(t, unread=NOT_WRITTEN if name in uninitialised else ""), returned=True)
            for name, t in named
        )
        if returns not in point.sealed:
            point.sealed[returns] = point.site.with_returns(next(self.site_ids), returns)
        return point.sealed[returns]


def _ignore(entry: CompactCall) -> None:
    """A graph that was running when the last recording closed still makes its notes."""


def _all_of(notes: Sequence[Callable[[CompactCall], Any]]) -> Callable[[CompactCall], Any]:
    def note(entry: CompactCall) -> Callable[[], None]:
        ends = [end for each in notes if (end := each(entry)) is not None]

        def end_all() -> None:
            for end in ends:
                end()

        return end_all

    return note if notes else _ignore


def _stream(point: LaunchPoint, kwargs: dict[str, Any]) -> tuple[int, bool]:
    stream = kwargs.get("stream")
    if not isinstance(stream, int):
        stream = torch._C._cuda_getCurrentRawStream(point.cuda_index)
    return stream, torch._C._cuda_isCurrentStreamCapturing()


def unseen(do: Callable[..., _Result], *args: Any) -> _Result:
    """Do something of our own where the user's torch-function modes do not see what it asks of tensors."""
    if not _modes():
        return do(*args)
    with torch._C.DisableTorchFunction():
        return do(*args)


def own_fault(where: str) -> Finding:
    """The recorder's own mistake: said, but never the user's problem."""
    trace = traceback.format_exc(limit=-3).strip()
    return Finding("recorder-error", f"kernelscope failed while {where}; the program went on.\n{trace}")


BUS = Bus()
