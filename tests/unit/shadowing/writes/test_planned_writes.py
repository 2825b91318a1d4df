"""Which buffers changed without a declared write, in later executions of a graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelscope.shadowing.writes.digests import DigestQueue, digests
from kernelscope.shadowing.writes.foreign_writes import Watch
from kernelscope.shadowing.writes.planned_writes import Plan, PlannedWatch

# What each launch reads and writes; a variable is gone once nothing uses it any more, but for the inputs.
LAUNCHES = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "c"), ("c", "d")]
ALIVE = ["xy", "xya", "xyb", "xyc", "xyc", "xycd"]
LAUNCHED = [(f"kernel_{i}", 10 + i) for i in range(len(LAUNCHES))]


def execute(watch: Watch | PlannedWatch, meddle: Callable[[int, dict[str, torch.Tensor]], None]) -> list[str]:
    """The names that changed, as they are found."""
    memory = {name: torch.full((8,), float(ord(name))) for name in "xyabcd"}
    found: list[str] = []
    for i, (read, wrote) in enumerate(LAUNCHES):
        held = {name: memory[name] for name in ALIVE[i]}
        alive = held | {wrote: memory[wrote]}
        if isinstance(watch, Watch):
            found += [change.name for change in watch.before(held, read, i)]
        else:
            watch.before(held, read, [memory[wrote]], i, LAUNCHED[i])
        memory[wrote].add_(1)
        meddle(i, memory)
        if isinstance(watch, Watch):
            found += [change.name for change in watch.after(alive, [memory[wrote]], i)]
        else:
            watch.after(alive, [memory[wrote]], i)
    return found


def plan() -> Plan:
    watch = Watch()
    assert not execute(watch, lambda i, memory: None)
    found = Plan.of(watch, LAUNCHED)
    assert found is not None
    return found


def test_nothing_changes() -> None:
    watch = PlannedWatch(plan())
    execute(watch, lambda i, memory: None)
    assert not watch.changes()
    assert watch.is_whole


def test_what_is_found_launch_by_launch_is_found_with_a_plan() -> None:
    steady = plan()
    for at in range(len(LAUNCHES)):
        for name in "xyabcd":

            def meddle(i: int, memory: dict[str, torch.Tensor]) -> None:
                if i == at:  # noqa: B023
                    memory[name][3] = -1  # noqa: B023

            expected = execute(Watch(), meddle)
            watch = PlannedWatch(steady)
            execute(watch, meddle)
            found = watch.changes()
            assert [change.name for change, _ in found] == expected, (at, name)
            assert all(at in change.suspects for change, _ in found), (at, name)


def test_a_launch_that_is_not_in_the_plan_is_watched_with_all_that_is_alive() -> None:
    steady = plan()
    other = Plan([("another", 1), *steady.launched[1:]], steady.endings)
    watch = PlannedWatch(other)

    def meddle(i: int, memory: dict[str, torch.Tensor]) -> None:
        if i == 1:
            memory["y"][3] = -1

    execute(watch, meddle)
    assert [(change.name, change.suspects) for change, _ in watch.changes()] == [("y", range(1, 2))]
    assert not watch.is_whole


def test_no_plan_is_made_of_an_execution_with_a_change() -> None:
    watch = Watch()

    def meddle(i: int, memory: dict[str, torch.Tensor]) -> None:
        memory["y"].add_(1)

    assert execute(watch, meddle)
    assert Plan.of(watch, LAUNCHED) is None


def test_inputs_that_share_memory_in_this_execution_only() -> None:
    """The plan did not know that the launch writes to it: it is compared before."""
    steady = plan()
    watch, memory = PlannedWatch(steady), torch.zeros(16)
    alive = {"x": memory[:8], "y": memory[4:12]}
    watch.before(alive, "x", [], 0, LAUNCHED[0])
    memory[10] = 5  # not declared
    watch.after(alive, [], 0)
    watch.before(alive, (), [alive["x"]], 1, LAUNCHED[1])
    watch.after(alive, [alive["x"]], 1)
    assert [(change.name, change.suspects) for change, _ in watch.changes()] == [("y", range(1))]


def test_digests_are_those_of_the_moment_at_which_they_were_asked_for() -> None:
    queue = DigestQueue()
    tensors = [torch.arange(100), torch.ones(10, 7).t(), torch.ones(3, dtype=torch.complex64).conj()]
    first, expected = queue.put(tensors), digests(tensors)
    tensors[0].add_(1)
    many = queue.put(tensors * 100)
    assert [queue.value(number) for number in first] == expected
    assert [queue.value(number) for number in many] == digests(tensors) * 100
    assert queue.value(many[0]) != expected[0]
