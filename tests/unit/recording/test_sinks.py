"""Where a recording puts what it sees."""

from __future__ import annotations

import torch
from tests.support.sample_runs import GRAPH, compiling, full_call, info, site

from kernelscope.config import Config
from kernelscope.events import COMPACT_CALL, GraphCall
from kernelscope.probes.bus import BUS
from kernelscope.recording import Recording
from kernelscope.recording.sinks import MemorySink


def test_a_sink_for_observers_keeps_nothing() -> None:
    """A program that prints values may run for days."""
    sink = MemorySink(info(), keeps_calls=False)
    for number in range(100):
        sink.graph_call(GraphCall(number, GRAPH, 7, 0, "forward", 1), is_paused=False)
        sink.enter(full_call(sink.next_key(), site(1)))
        sink.note(COMPACT_CALL.pack(1, number, 5))
        sink.mark("step", str(number))
        sink.compiled(compiling()[0])
    counts = {k: len(v) for k, v in vars(sink.run).items() if isinstance(v, list | dict)}
    assert len(counts) > 5
    assert not any(counts.values())


def test_a_recording_for_observers_keeps_nothing_of_graph_calls() -> None:
    recording = Recording(Config(), keeps_calls=False)
    recording.open()

    def kept() -> dict[str, int]:
        owners = (recording, recording.sink, recording.run)
        every = [(owner, name, value) for owner in owners for name, value in vars(owner).items()]
        return {f"{type(o).__name__}.{name}": len(v) for o, name, v in every if isinstance(v, list | dict)}

    try:
        before = kept()  # not nothing: what the process knew already, and its steady sites
        for _ in range(1000):
            BUS.graph_call(GRAPH, "forward", 0, [torch.ones(1)])
            BUS.step()
        more = {name: count - before.get(name, 0) for name, count in kept().items()}
        assert max(more.values()) < 10, more
    finally:
        recording.close()


def test_a_run_that_is_kept_has_them() -> None:
    sink = MemorySink(info())
    sink.graph_call(GraphCall(3, GRAPH, 7, 0, "forward", 1), is_paused=False)
    sink.mark("step", "1")
    sink.close()
    assert sink.run.graph_of(3) is GRAPH
    assert [mark.kind for mark in sink.run.marks] == ["step"]
