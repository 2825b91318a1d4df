"""The number of a graph call tells whether a recording was there when it began."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support.sample_runs import GRAPH

from kernelscope.config import Config
from kernelscope.events import GraphCall
from kernelscope.probes import bus as bus_module
from kernelscope.probes.bus import Bus
from kernelscope.recording import Recording


def begun_at_once(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two threads begin a graph call: the one with the lower number is the later one to come to its end."""
    has_number, may_go_on = threading.Event(), threading.Event()

    def held_up_in_one(*args: Any) -> GraphCall:
        if threading.current_thread() is slow:
            has_number.set()
            assert may_go_on.wait(60)
        return GraphCall(*args)

    numbers: list[int] = []
    slow = threading.Thread(target=lambda: numbers.append(bus.graph_call(GRAPH, "forward", 0)))
    with monkeypatch.context() as patched:
        patched.setattr(bus_module, "GraphCall", held_up_in_one)
        slow.start()
        assert has_number.wait(60)
        numbers.append(bus.graph_call(GRAPH, "forward", 0))
        may_go_on.set()
        slow.join(60)
    assert numbers == sorted(numbers, reverse=True)
    return numbers


@pytest.mark.timeout(120)
def test_what_begins_at_once_on_two_threads_began_before_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    before = begun_at_once(bus, monkeypatch)
    first = bus.attach(Recording(Config()))
    assert max(before) < first <= bus.graph_call(GRAPH, "forward", 0)
