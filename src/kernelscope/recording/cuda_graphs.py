"""Launches inside CUDA graphs: prepared while the graph is captured, recorded at each of its replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernelscope.events import CapturedGraph, Finding, Kernel, SteadySite
from kernelscope.fingerprint.captured import CannotCapture, CapturedFingerprints
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.probes.bus import BUS
from kernelscope.probes.cuda_graphs.captured_graphs import capturing_device, current_stream
from kernelscope.probes.launch import Capture, Launch
from kernelscope.probes.listener import Kept
from kernelscope.store.flight.markers import GraphProgress

from .launch_values import LaunchValues, Slots
from .observers import Late


class LateCapture:
    """A launch inside a CUDA graph, for an observer that reads its values at each replay."""

    def __init__(self, late: Late, cannot: Callable[[str], None]) -> None:
        self._late = late
        self._cannot = cannot

    def finish(self, launch: Launch) -> None:
        try:
            self._late.captured(launch)
        except Exception as why:
            self._cannot(str(why))


class CapturedCall:
    """What is to be read of a launch at each replay of its CUDA graph: rows of the graph's own."""

    __slots__ = ("_kept", "place", "poison", "post", "pre")

    def __init__(self, kept: CapturedValues) -> None:
        self._kept = kept
        self.pre: Slots | None = None
        self.post: Slots | None = None
        self.poison: Slots | None = None
        self.place = -1  # of its word, where the progress of replays is marked

    def finish(self, launch: Launch) -> None:
        if self._kept.marks is not None:
            self.place = self._kept.marks.after(launch)
        if self.pre is not None and launch.error is None:
            self._kept.follow(launch)
            try:
                self.post = self._kept.values.after(launch, self.pre)
            except CannotCapture as why:
                self._kept.cannot(str(why))


class MarkedCall:
    """A launch inside a CUDA graph whose progress is marked, without values."""

    __slots__ = ("_graph", "place")

    def __init__(self, graph: MarkedGraph) -> None:
        self._graph = graph
        self.place = -1

    def finish(self, launch: Launch) -> None:
        self.place = self._graph.after(launch)


class MarkedGraph:
    """A CUDA graph in which the GPU notes the end of each launch, so that a fault in a replay has a name."""

    nbytes = 0  # of the GPU's memory

    def __init__(self, cannot: Callable[[Finding], None]) -> None:
        self._cannot = cannot
        self.progress: GraphProgress | None = None
        with self._contained():
            self.progress = GraphProgress()
        self.memory: object = None  # the words are never freed

    def begin(self) -> None:
        if self.progress is not None:
            with self._contained():
                self.progress.begin(current_stream(capturing_device().index))

    def end(self) -> None:
        """Nothing is open."""

    def before(self, launch: Launch) -> MarkedCall:
        return MarkedCall(self)

    def make_way(self, launch: Launch) -> None:
        """Nothing is read later."""

    def after(self, launch: Launch) -> int:
        if self.progress is None or launch.error is not None or launch.point.cuda_index < 0:
            return -1
        with self._contained():
            return self.progress.mark(current_stream(launch.point.cuda_index))
        return -1

    @contextmanager
    def _contained(self) -> Iterator[None]:
        """Without markers a fault is named as the first call of its replay."""
        try:
            yield
        except OSError as error:
            self.progress = None
            self._cannot(Finding("graph-not-marked", f"launches in a CUDA graph are not marked: {error}"))


class CapturedValues:
    """What a recording keeps for a CUDA graph."""

    def __init__(
        self,
        fingerprints: CapturedFingerprints,
        verify: str,
        cannot: Callable[[str], None],
        marks: MarkedGraph | None = None,
    ) -> None:
        self.fingerprints = fingerprints
        self.marks = marks
        self.values = LaunchValues(fingerprints, verify)
        self._fills = verify == "poison"
        self.end = fingerprints.flush
        self.cannot = cannot

    def begin(self) -> None:
        if self.marks is not None:
            self.marks.begin()
        self.fingerprints.begin()

    @property
    def memory(self) -> object:
        return self.fingerprints.rows, self.marks

    @property
    def nbytes(self) -> int:
        return self.fingerprints.rows.nbytes

    def before(self, launch: Launch) -> CapturedCall:
        call = CapturedCall(self)
        self.follow(launch)
        try:
            call.pre, call.poison = self.values.before(launch), self.values.poison(launch)
        except CannotCapture as why:
            self.cannot(str(why))
        self.make_way(launch)
        return call

    def follow(self, launch: Launch) -> None:
        """Whether what this launch finds and leaves may be read later: if every write until then is seen."""
        point, wrapper = launch.point, BUS.here.wrapper
        is_seen = launch.graph_call >= 0 and point.is_wrappers and not (point.is_opaque or point.is_pending)
        on_one_stream = getattr(wrapper, "is_on_one_stream", False)
        self.fingerprints.waits = is_seen and on_one_stream and not self._fills
        if not self.fingerprints.waits:
            self.fingerprints.flush()

    def make_way(self, launch: Launch) -> None:
        """Before a launch: read what it is going to overwrite."""
        self.fingerprints.make_way(launch.flat[i] for i, _ in launch.point.outputs)


def prepare_capture(
    late: Late | None,
    fingerprinter: Fingerprinter | None,
    verify: str,
    finding: Callable[[Finding], None],
    *,
    marked: bool,
) -> Kept | None:
    """What a recording keeps for the CUDA graph that is about to be captured."""
    if late is not None:
        late.prepare(capturing_device())
        return late
    marks = MarkedGraph(finding) if marked else None
    if fingerprinter is None:
        return marks
    fingerprints = CapturedFingerprints(fingerprinter, capturing_device())
    return CapturedValues(fingerprints, verify, lambda why: finding(not_in_graph(why)), marks)


def captured_graph(capture: Capture, listener: object, wants: Callable[[Kernel], bool]) -> CapturedGraph:
    """What is the same at each replay, as far as this recording wants it."""
    launches, places = [], []
    storages: dict[int, int] = {}
    for template in capture.templates:
        if not wants(template.site.kernel):
            continue
        own = template.calls.get(listener)
        places.append(own.place if isinstance(own, CapturedCall | MarkedCall) else -1)
        pre, post, poison = (
            (own.pre, own.post, own.poison) if isinstance(own, CapturedCall) else (None, None, None)
        )
        launches.append(
            SteadySite(
                template.site,
                template.uninitialised,
                pre,
                post,
                tuple(storages.setdefault(s.id, len(storages)) for s in template.storages),
                template.epochs,
                template.offsets,
                poison=poison,
                scalars=template.scalars,
                phase=template.phase,
            )
        )
    kept = capture.kept.get(listener)
    rows = kept.fingerprints.count if isinstance(kept, CapturedValues) else 0
    marks = kept.marks if isinstance(kept, CapturedValues) else kept
    progress = marks.progress if isinstance(marks, MarkedGraph) else None
    return CapturedGraph(tuple(launches), tuple(map(BUS.number, launches)), rows, progress, tuple(places))


def not_in_graph(why: str) -> Finding:
    return Finding("values-in-cuda-graph", f"calls replayed from a CUDA graph have no hashes: {why}")
