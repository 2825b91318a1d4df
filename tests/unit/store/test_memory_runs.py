"""Runs in memory that are copied, and read while other work goes on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.sample_runs import info, site
from tests.unit.analysis.simulated import chain, simulate

from kernelscope.events import Call, CapturedGraph, Replay, SteadySite
from kernelscope.model import run as model
from kernelscope.store.memory_run import MemoryRun
from kernelscope.store.recent_calls import RecentCalls

GRAPH = CapturedGraph(tuple(SteadySite(site(number), ()) for number in range(3)), (0, 1, 2), 0)
REPLAY = Replay(GRAPH, -1, 0, 1, 0, 0, 0, -1, None)


def _pickled(run: Any) -> Any:
    return pickle.loads(pickle.dumps(run))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled])
def test_a_copy_of_a_run_has_its_calls(copied: Callable[[Any], Any]) -> None:
    run = simulate(chain(4, [0] * 8), {-1: 1, -2: 2})
    assert isinstance(run, MemoryRun)
    names, last = [call.kernel_name for call in run.calls], run.entries.pop()
    del run._calls[-1:], run._views[-1:]
    run._spelled_out -= 1  # as it is while the last call has not come
    other = copied(run)
    if other.entries is not run.entries:
        other.entries.append(last)
    run.entries.append(last)
    for each in (run, other, run, other):
        assert [call.kernel_name for call in each.calls] == names
        assert len(each) == 4


def test_a_reader_that_is_interrupted_by_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = simulate(chain(4, [0] * 8), {-1: 1, -2: 2})
    view_of, inner = model.view_of, []

    def interrupted(*given: Any) -> Any:
        if not inner:
            inner.append(None)
            inner[0] = run.calls
        return view_of(*given)

    monkeypatch.setattr(model, "view_of", interrupted)
    for calls in (run.calls, inner[0], run.calls):
        assert [call.index for call in calls] == [0, 1, 2, 3]


class Interrupted(list[Any]):
    """A handler of a signal comes when something has been added."""

    def __init__(self, handler: Callable[[], Any]) -> None:
        super().__init__()
        self.handler = handler

    def append(self, entry: Any) -> None:
        super().append(entry)
        self.handler()


def test_a_handler_of_a_signal_closes_the_recording() -> None:
    run = MemoryRun(info())
    run.entries = Interrupted(run.settle)
    run.replayed(REPLAY)
    run.entries.append(Call(-1, site(0), -1))
    assert len(run) == len(run.calls) == 3
    run.resume()
    run.replayed(REPLAY)
    assert len(run) == len(run.calls) == 6


def test_a_handler_of_a_signal_launches_a_kernel() -> None:
    recent = RecentCalls()
    with recent._taking:
        assert recent.take() == 0
