"""Launches inside CUDA graphs: prepared while the graph is captured, recorded at each of its replays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from kernelscope.events import Call, Finding
from kernelscope.fingerprint.captured import CannotCapture, CapturedFingerprints
from kernelscope.fingerprint.fingerprinter import Fingerprinter
from kernelscope.probes.cuda_graphs.captured_graphs import capturing_device
from kernelscope.probes.launch import Launch, Template
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
            try:
                self.post = self._kept.values.after(launch, self.pre)
            except CannotCapture as why:
                self._kept.cannot(str(why))

    def put_into(self, call: Call, slots: Sequence[int]) -> None:
        """`slots` has for each row of the graph where this replay's fingerprint went."""
        call.fingerprinter = self._kept.fingerprints.fingerprinter
        call.pre, call.post, call.poison = (
            None if rows is None else {i: slots[row] for i, row in rows.items()}
            for rows in (self.pre, self.post, self.poison)
        )


class CapturedValues:
    """What a recording keeps for a CUDA graph."""

    def __init__(
        self, fingerprints: CapturedFingerprints, verify: str, cannot: Callable[[str], None]
    ) -> None:
        self.fingerprints = fingerprints
        self.values = LaunchValues(fingerprints, verify)
        self.begin = fingerprints.begin
        self.cannot = cannot

    @property
    def memory(self) -> object:
        return self.fingerprints.rows

    @property
    def nbytes(self) -> int:
        return self.fingerprints.rows.nbytes

    def before(self, launch: Launch) -> CapturedCall:
        call = CapturedCall(self)
        try:
            call.pre, call.poison = self.values.before(launch), self.values.poison(launch)
        except CannotCapture as why:
            self.cannot(str(why))
        return call


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


def replayed_call(
    template: Template,
    epochs: tuple[int, ...],
    key: int,
    graph_call: int,
    step: int,
    replay: int,
    stream: int,
) -> Call:
    """The call of one launch of a CUDA graph at one replay."""
    return Call(
        key,
        template.site,
        graph_call,
        step,
        replay,
        threading.get_ident(),
        stream,
        template.phase,
        time.monotonic_ns(),
        scalars=template.scalars,
        storages=tuple([s.id for s in template.storages]),
        epochs=epochs,
        offsets=template.offsets,
        uninitialised=template.uninitialised,
        key=key,
    )


def not_in_graph(why: str) -> Finding:
    return Finding("values-in-cuda-graph", f"calls replayed from a CUDA graph have no hashes: {why}")
