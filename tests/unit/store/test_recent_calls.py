"""Which call a late finding is about, in a recording that keeps no calls."""

from __future__ import annotations

from tests.support.sample_runs import site

from kernelscope.events import COMPACT_CALL, CapturedGraph, Replay, SteadySite
from kernelscope.store import recent_calls
from kernelscope.store.recent_calls import RecentCalls

STEADY = {number: SteadySite(site(10 + number), ()) for number in range(3)}


def note(recent: RecentCalls, number: int, graph_call: int) -> None:
    recent.note(COMPACT_CALL.pack(number, graph_call, 0))


def test_a_call_is_found_by_its_site_and_graph_call() -> None:
    recent = RecentCalls()
    for graph_call in range(4):
        assert recent.take() == 4 * graph_call, "a call that was looked at"
        for number in STEADY:
            note(recent, number, graph_call)
    assert [recent.index_of(11, graph_call, STEADY) for graph_call in range(5)] == [2, 6, 10, 14, -1]
    assert recent.newest == 15


def test_old_ones_are_let_go_of() -> None:
    recent = RecentCalls()
    for graph_call in range(recent_calls.KEPT_NOTES + 5):
        note(recent, 0, graph_call)
    assert len(recent._notes) == recent_calls.KEPT_NOTES
    assert recent.index_of(10, 4, STEADY) == -1
    assert recent.index_of(10, 5, STEADY) == 5


def test_the_first_replay_stands_for_all() -> None:
    recent, graph = RecentCalls(), CapturedGraph((STEADY[1], STEADY[2], STEADY[1]), (1, 2, 1), 0)
    note(recent, 0, 0)
    for number in range(3):
        recent.replayed(Replay(graph, -1, 0, number, 0, 0, 0, -1, None))
    assert (recent.index_of(11, None, STEADY), recent.index_of(12, None, STEADY)) == (1, 2)
    assert recent.index_of(10, None, STEADY) == -1
    assert recent.newest == 9
