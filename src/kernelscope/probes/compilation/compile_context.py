"""Which frame and which graph the compiler is working on; records of them are emitted to the bus."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic_ns
from typing import Any

from kernelscope.events import Frame
from kernelscope.probes.bus import BUS
from kernelscope.probes.own_work import own_fault
from kernelscope.stages.records import FRAME, Compilation, Incident, Made, Record, Stage

_MOST_KEPT = 200  # compilations whose records are held for the cache: a backward comes after its forward


class _Thread(threading.local):
    graph: Compilation | None = None  # the one that is being lowered


class CompileContext:
    """What is being compiled now."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._here = _Thread()
        self.frames: dict[str, Compilation] = {}  # the newest of each compile id
        self.pre_grad: dict[int, set[str]] = {}  # by frame: names of nodes in its graph before autograd
        self.by_sequence: dict[int, dict[int, set[str]]] = {}  # by frame: those that autograd numbered
        self.records: dict[int, list[Record]] = {}  # by compilation, for the cache beside Inductor's
        self.traces: dict[int, tuple[str, ...]] = {}  # by frame: the stacks of Dynamo's graph
        self._failed: set[int] = set()  # frames of which a failure has been known

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    # -- where we are ----------------------------------------------------------------------------------

    @property
    def graph(self) -> Compilation | None:
        return self._here.graph

    def here(self) -> Compilation | None:
        """The graph that is being lowered, or else the frame that is being compiled."""
        return self._here.graph or self.frames.get(current_compile_id())

    def frame(self, compile_id: str) -> Compilation:
        known = self.frames.get(compile_id)
        return known if known is not None else self.begin_frame(compile_id)

    def begin_frame(self, compile_id: str, name: str = "", origin: tuple[Frame, ...] = ()) -> Compilation:
        made = Compilation(
            next(self._ids), compile_id, FRAME, name=name, start_ns=monotonic_ns(), origin=origin
        )
        self.frames[compile_id] = made
        self.emit(made)
        return made

    def origin_of(self, frame: int) -> tuple[Frame, ...]:
        return next((f.origin for f in self.frames.values() if f.id == frame), ())

    def end_frame(self, compile_id: str, **changes: Any) -> Compilation:
        ended = replace(self.frame(compile_id), **changes)
        self.frames[compile_id] = ended
        self.emit(ended)
        return ended

    def new_graph(self, direction: str, name: str = "") -> Compilation:
        compile_id = current_compile_id()
        frame = self.frame(compile_id)
        graph = Compilation(
            next(self._ids), compile_id, direction, frame.id, name=name, start_ns=monotonic_ns()
        )
        self.emit(graph)
        return graph

    @contextmanager
    def lowering(self, graph: Compilation) -> Iterator[None]:
        outer, self._here.graph = self._here.graph, graph
        try:
            yield
        finally:
            self._here.graph = outer

    def end_graph(self, graph: Compilation, made: Made, cache_key: str = "", name: str = "") -> Compilation:
        took = monotonic_ns() - graph.start_ns
        ended = replace(graph, made=made, cache_key=cache_key, duration_ns=took, name=name or graph.name)
        self.emit(ended)
        return ended

    def text_of(self, compilation: int, stage: str) -> str:
        """A stage as it was known last; empty when it was not."""
        known = self.records.get(compilation, ())
        return next((r.text for r in reversed(known) if isinstance(r, Stage) and r.name == stage), "")

    # -- what is emitted --------------------------------------------------------------------------------

    def emit(self, record: Record) -> None:
        if not isinstance(record, Compilation | Incident):
            self.records.setdefault(record.compilation, []).append(record)
            while len(self.records) > _MOST_KEPT:
                del self.records[next(iter(self.records))]
        BUS.compiled(record)

    def stage(
        self, of: Compilation, name: str, language: str, text: str, start_ns: int = 0, duration_ns: int = -1
    ) -> None:
        self.emit(Stage(of.id, name, language, text, start_ns or monotonic_ns(), duration_ns))

    def fail(self, incident: Incident) -> None:
        graph = self._here.graph
        self._failed |= {incident.compilation, graph.frame if graph is not None else -1}
        self.emit(incident)

    def has_failed(self, frame: int) -> bool:
        return frame in self._failed


def current_compile_id() -> str:
    from torch._guards import CompileContext as Torchs

    return str(Torchs.current_compile_id() or "")


@contextmanager
def ours(what: str) -> Iterator[None]:
    """Our own mistakes become findings; the compiler goes on."""
    try:
        yield
    except Exception:
        BUS.finding(own_fault(what))
