"""A writer that has given up keeps nothing of what a program that goes on still brings it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.sample_runs import GRAPH, compact_call, compiling, full_call, site, write_sample

from kernelscope.events import Finding, GraphCall
from kernelscope.store.writer_thread import Writer

MANY = 500


def bring(writer: Writer, number: int) -> None:
    """One of everything that launching threads, the compiler and observers have for a writer."""
    known, new = site(1), site(100 + number)
    writer.graph_call(GraphCall(number, GRAPH, 7, 0, "forward", 1))
    writer.planned(number, 64 * number, 8)
    for at in (known, new):
        call = full_call(next(writer.flight), at)
        writer.enter(call)
        writer.leave(call)
    writer.note(compact_call(writer, known, number))()
    writer.mark("step", str(number))
    writer.finding(Finding("undeclared-write", f"something {number}", number))
    writer.set_metadata(f"key {number}", number)
    writer.duration(number, 1500)
    writer.tensor(number, 0, "before", f"{number}.bin")
    writer.compiled.append(compiling()[0])


def kept(writer: Writer) -> dict[str, int]:
    owners = (writer, writer.flight, writer.slots, writer.replayed.__self__)  # type: ignore[attr-defined]
    named = [
        (f"{type(owner).__name__}.{name}", value) for owner in owners for name, value in vars(owner).items()
    ]
    return {name: len(value) for name, value in named if isinstance(value, list | dict | set)}


@pytest.mark.filterwarnings("ignore:kernelscope stopped recording")
def test_nothing_is_kept_after_a_failure(tmp_path: Path) -> None:
    writer = write_sample(tmp_path / "x.kscope", close=False)
    try:
        with writer.lock:
            writer.give_up("the disk is full")
        bring(writer, 0)
        before = kept(writer)
        assert len(before) > 10
        for number in range(1, MANY):
            bring(writer, number)
        more = {name: count - before[name] for name, count in kept(writer).items() if count > before[name]}
        assert more == {}
    finally:
        writer.forget()
