"""Notifies the open recordings of everything but launches: graph calls, captures, findings, steps."""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from kernelscope.events import (
    FOREIGN_MEMORY,
    Arg,
    CompactCall,
    Finding,
    Frame,
    Kernel,
    Phase,
    Site,
    SteadySite,
)
from kernelscope.stages.records import Record

from .launch import Capture, Launch
from .listener import Bystander, GraphPlan, Listener, Planner, ignore
from .own_work import own_fault
from .storages import Storages


@dataclass(frozen=True, slots=True)
class CallbackOf:
    """The code that has asked to be called back, perhaps on another thread."""

    phase: Phase
    frames: tuple[Frame, ...]


class _ThreadState(threading.local):
    def __init__(self) -> None:
        """In each thread: all are there, so that `__dict__` has them too."""
        self.muted = 0  # the recorder's own work, autotuning, compilation, what is part of a launch
        self.leaves = 0  # how many of these are launches
        self.graph_call = -1
        self.execution: Any = None  # the graph call, where its fingerprints are planned
        self.plan: GraphPlan | None = None  # that made it
        self.wrapper: Any = None  # of the graph that is executing
        self.in_graph = 0
        self.backward = False
        self.optimizer = 0
        self.callback_of: CallbackOf | None = None
        self.launch: Launch | None = None
        self.opaque = 0  # launches of the user's own code that are over: each may have written to anything


class Notifier:
    """Passes what probes see on to the open recordings; keeps what is a fact of the process."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.bystanders: tuple[Bystander, ...] = ()
        self.storages = Storages(self._met_foreign_memory)
        self.here = _ThreadState()
        self.under_way: list[Launch] = []  # collectives in place that have begun
        self.awaited: list[Launch] = []  # those that the program waits for now: a wait may still write
        self.capture: Capture | None = None  # the CUDA graph that is being captured
        self.accepts_compact = False  # a note of a launch at a steady site is enough for every recording
        self.notes_have_ends = False  # whether code that is chosen now is to report the ends of launches
        self.profiler = 0  # the number of torch's profiler that is running; 0 when none is
        self._profilers = itertools.count(1)
        self.planner: Planner | None = None  # the only recording, if its hashes can be planned
        self.wanted = object()  # another one whenever what the recordings want may have changed
        # Which of the two is called is a matter of the code that runs: a profiler may start at any moment.
        self.note: Callable[[CompactCall], Any] = ignore
        self.note_with_end: Callable[[CompactCall], Any] = ignore  # its result is called after the launch
        self.steady_sites: dict[int, SteadySite] = {}  # by the number that a note has for it
        self._steady_ids = itertools.count()
        self.executing = 0  # graphs that run now; one may outlast the recording that it began under
        self.before_capture: Callable[[], None] | None = None
        self.after_detach: Callable[[Listener], None] | None = None
        self._graph_calls = itertools.count()  # their numbers in the order of beginning, with gaps
        self.site_ids = itertools.count()
        self.kernels: dict[tuple[str, str, str], Kernel] = {}
        self._kernel_ids = itertools.count()
        self._lock = threading.Lock()

    def attach(self, listener: Listener) -> int:
        """Returns a number that is lower than those of the graph calls that it observes as a whole."""
        with self._lock:
            # Before it is added: a launch that finds it among the listeners must not make a compact note.
            self.accepts_compact, self.wanted = False, object()
            self.listeners = (*self.listeners, listener)
            self.refresh()
            return next(self._graph_calls)  # no graph call has this number: those that began have lower ones

    def detach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            self.refresh()
            if not self.listeners:
                self.storages.clear()
                self.kernels = {}
                if not self.executing:
                    self.steady_sites = {}
        if self.after_detach is not None:
            try:
                self.after_detach(listener)
            except Exception:
                report(listener, own_fault("releasing CUDA graphs, which may still take fingerprints"))

    def forget(self) -> None:
        """In a forked child: it has no listeners, and the weak references are its own copies."""
        self.listeners = ()
        self.bystanders = ()
        self.accepts_compact, self.planner, self.profiler = False, None, 0
        self.note = self.note_with_end = ignore
        self.steady_sites, self.executing, self.under_way = {}, 0, []
        self.storages = Storages(self._met_foreign_memory)
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

    def kernel(self, name: str, kind: str, producer: str, source: str = "") -> Kernel:
        source_hash = _source_hash(source, name) if source else ""
        key, kernels = (name, kind, source_hash), self.kernels
        known = kernels.get(key)
        if known is None:
            made = Kernel(next(self._kernel_ids), name, kind, producer, source, source_hash)
            known = kernels.setdefault(key, made)  # another thread may have been faster
        return known

    def site(self, kernel: Kernel, args: tuple[Arg, ...], origin: tuple[Frame, ...], **known: Any) -> Site:
        """A new site: on the device of its first tensor, and without a `file` at the line of its origin."""
        device = next((a.tensor.device for a in args if a.tensor is not None), "")
        if "file" not in known and origin:
            known |= {"file": origin[0].file, "line": origin[0].line}
        return Site(next(self.site_ids), kernel, args, origin=origin, device=device, **known)

    def number(self, steady: SteadySite) -> int:
        """The number by which notes refer to this site."""
        number = next(self._steady_ids)  # never used for another one
        self.steady_sites[number] = steady
        return number

    def refresh(self) -> None:
        """What the recordings want together; called whenever that may have changed."""
        listeners = self.listeners
        self.accepts_compact = (
            bool(listeners) and self.capture is None and all(each.accepts_compact for each in listeners)
        )
        self.planner = None
        # A range in a profiler's trace has an end.
        self.notes_have_ends = bool(self.profiler) or any(each.notes_have_ends for each in listeners)
        self.note = _all_of([each.note for each in listeners])
        self.note_with_end = _all_of([each.note_with_end for each in listeners])
        if len(listeners) == 1 and self.capture is None and not self.profiler:
            self.planner = listeners[0].planner
        self.wanted = object()  # last: what was read before belongs to the one before

    def profiled(self, is_on: bool) -> None:
        """One of torch's profilers starts or has stopped; it counts from each graph's next call on."""
        self.profiler = next(self._profilers) if is_on else 0
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
                report(listener, own_fault("preparing for a CUDA graph"))
            else:
                if kept is not None:
                    capture.kept[listener] = kept

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        """A compiled graph raised; if a noted launch did, its note is the last and has that line."""
        self._tell("recording that a graph raised", lambda each: each.note_failed(graph_call, line, error))

    def graph_call_ended(self, graph_call: int) -> None:
        for listener in self.listeners:
            try:
                listener.graph_call_ended(graph_call)
            except Exception:
                report(listener, own_fault("recording the end of a graph call"))

    def replayed(self, capture: Capture) -> None:
        """A CUDA graph was replayed: each launch of its capture has been enqueued once more."""
        stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
        if capture.written is None:
            written = {storage.id for template in capture.templates for storage in template.written}
            capture.written = self.storages.lasting(written)
        for storage in capture.written:
            storage.epoch += 1
        self.here.opaque += 1  # what a graph call has read before it is read again
        for listener in self.listeners:
            try:
                listener.replayed(capture, stream, self.here.graph_call)
            except Exception:
                report(listener, own_fault("recording the replay of a CUDA graph"))
        capture.replays += 1

    def finding(self, finding: Finding) -> None:
        for listener in self.listeners:
            report(listener, finding)

    def note_raised(self) -> None:
        """Called by wrappers while an error of ours is handled that a note, or its end, has raised."""
        self.finding(own_fault("noting a launch"))

    def compiled(self, record: Record) -> None:
        """The compiler did something."""
        self._tell("recording what the compiler did", lambda each: each.compiled(record))

    def mark(self, kind: str, text: str) -> None:
        """Several times a step, also where a step is short: between two steps a program fills the processor's
        caches with data of its own, so each function and object that is touched here takes its time."""
        here = self.here
        here.muted += 1
        try:
            for listener in self.listeners:
                try:
                    listener.mark(kind, text)
                except Exception:
                    report(listener, own_fault("recording a mark"))
        finally:
            here.muted -= 1

    def _met_foreign_memory(self, storage: int) -> None:
        self.mark(FOREIGN_MEMORY, str(storage))

    def step(self) -> None:
        here = self.here
        here.muted += 1
        try:
            for listener in self.listeners:
                try:
                    listener.step()
                except Exception:
                    report(listener, own_fault("counting a step"))
        finally:
            here.muted -= 1

    def _tell(self, doing: str, tell: Callable[[Listener], None]) -> None:
        """Each recording; what one of them raises is its own finding, and never reaches the program."""
        with self.mute():
            for listener in self.listeners:
                try:
                    tell(listener)
                except Exception:
                    report(listener, own_fault(doing))

    def pass_by(
        self, what: str, func: Any, args: Any, kwargs: Any, run: Callable[..., Any] | None = None
    ) -> Any:
        """Run an operator that launches nothing itself (or `run` in its place); bystanders list it."""
        run = run or func
        if not self.bystanders:
            return run(*args, **kwargs)
        after = self._call_all(func, [partial(b.passing, what, func, args, kwargs) for b in self.bystanders])
        result = None
        try:
            result = run(*args, **kwargs)
        finally:
            self._call_all(func, [partial(t, result) for t in after if t is not None])
        return result

    def unwrapped(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        """A tensor subclass is about to take an operator apart."""
        self._call_all(func, [partial(b.unwrapping, func, types, args, kwargs) for b in self.bystanders])

    def _call_all(self, func: Any, calls: list[Callable[[], Any]]) -> list[Any]:
        answers = []
        for call in calls:
            try:
                answers.append(call())
            except Exception:
                self.finding(own_fault(f"looking at {func}"))
        return answers


def report(listener: Listener, finding: Finding) -> None:
    with suppress(Exception):  # it cannot be told of its own failure to listen
        listener.finding(finding)


def _all_of(notes: Sequence[Callable[[CompactCall], Any]]) -> Callable[[CompactCall], Any]:
    if len(notes) == 1:
        return notes[0]

    def note(entry: CompactCall) -> Callable[[], None]:
        ends = [end for each in notes if (end := each(entry)) is not None]

        def end_all() -> None:
            for end in ends:
                end()

        return end_all

    return note if notes else ignore


@lru_cache(maxsize=4096)
def _source_hash(source: str, name: str) -> str:
    """Equal for two kernels that differ only in Inductor's numbering (`…_0`, `…_3`)."""
    base = re.sub(r"_\d+$", "", name)
    normal = re.sub(rf"\b{re.escape(base)}_\d+\b", base, source) if base else source
    return hashlib.sha256(normal.encode()).hexdigest()[:16]
