"""Launches inside CUDA graphs: prepared while the graph is captured, recorded at each of its replays."""

from __future__ import annotations

from collections.abc import Callable

from kernelscope.events import CapturedGraph, Finding, Kernel, SteadySite
from kernelscope.fingerprint.captured import CannotCapture, CapturedFingerprints
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.probes.bus import BUS
from kernelscope.probes.cuda_graphs.captured_graphs import capturing_device
from kernelscope.probes.launch import Capture, Launch
from kernelscope.probes.listener import Kept

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

    __slots__ = ("_kept", "poison", "post", "pre")

    def __init__(self, kept: CapturedValues) -> None:
        self._kept = kept
        self.pre: Slots | None = None
        self.post: Slots | None = None
        self.poison: Slots | None = None

    def finish(self, launch: Launch) -> None:
        if self.pre is not None and launch.error is None:
            self._kept.follow(launch)
            try:
                self.post = self._kept.values.after(launch, self.pre)
            except CannotCapture as why:
                self._kept.cannot(str(why))


class CapturedValues:
    """What a recording keeps for a CUDA graph."""

    def __init__(
        self, fingerprints: CapturedFingerprints, verify: str, cannot: Callable[[str], None]
    ) -> None:
        self.fingerprints = fingerprints
        self.values = LaunchValues(fingerprints, verify)
        self._fills = verify == "poison"
        self.begin, self.end = fingerprints.begin, fingerprints.flush
        self.cannot = cannot

    @property
    def memory(self) -> object:
        return self.fingerprints.rows

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
    late: Late | None, fingerprinter: Fingerprinter | None, verify: str, cannot: Callable[[str], None]
) -> Kept | None:
    """What a recording keeps for the CUDA graph that is about to be captured."""
    if late is not None:
        late.prepare(capturing_device())
        return late
    if fingerprinter is None:
        return None
    return CapturedValues(CapturedFingerprints(fingerprinter, capturing_device()), verify, cannot)


def captured_graph(capture: Capture, listener: object, wants: Callable[[Kernel], bool]) -> CapturedGraph:
    """What is the same at each replay, as far as this recording wants it."""
    launches = []
    storages: dict[int, int] = {}
    for template in capture.templates:
        if not wants(template.site.kernel):
            continue
        own = template.calls.get(listener)
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
    return CapturedGraph(tuple(launches), tuple(map(BUS.number, launches)), rows)


def not_in_graph(why: str) -> Finding:
    return Finding("values-in-cuda-graph", f"calls replayed from a CUDA graph have no hashes: {why}")
