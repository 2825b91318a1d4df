"""Calls that are noted without an end: over when their graph call comes to the next one, or ends."""

from __future__ import annotations

import _thread
import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.sample_runs import ARGS, info, site

import kernelscope
from kernelscope.events import COMPACT_CALL, Call, Site, SteadySite
from kernelscope.store.columns import columns_of
from kernelscope.store.flight import noting
from kernelscope.store.flight.reader import read_flight
from kernelscope.store.flight.recovered_calls import open_run
from kernelscope.store.run_db.row_writer import Database
from kernelscope.store.writer_thread import Writer


def note(writer: Writer, at: Site, graph_call: int, steady: SteadySite | None = None) -> None:
    writer.flight.steady = {at.id: steady or SteadySite(at, (1,))}.get
    writer.plain_notes.note(COMPACT_CALL.pack(at.id, graph_call, time.monotonic_ns()))


@pytest.fixture(params=["native", "python"], autouse=True)
def which(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(noting, "LIBRARY", SimpleNamespace(get=lambda: None))
    else:
        assert not noting.LIBRARY.unavailable()


def executing(folder: Path) -> list[int]:
    return [cell.index for cell in read_flight(folder / "flight").cells if cell.is_executing]


def test_which_calls_are_over(tmp_path: Path) -> None:
    writer, at = Writer(tmp_path, info()), site(1)
    for graph_call in (5, 5, 6, 5):
        note(writer, at, graph_call)
    writer.flush()
    assert writer.calls == 2, "the newest of each graph call may be running"
    assert executing(tmp_path) == [2, 3]
    writer.plain_notes.ended(6)
    writer.flush()
    assert (writer.calls, executing(tmp_path)) == (3, [3])
    writer.flight.enter(Call(next(writer.flight), at, 5))  # of the same graph call, in full
    assert executing(tmp_path) == [4]
    writer.plain_notes.ended(5)
    writer.close()
    assert [c.index for c in kernelscope.load(tmp_path).calls] == [0, 1, 2, 3]


def test_streams_are_marked_when_the_next_call_comes(tmp_path: Path) -> None:
    writer, marked = Writer(tmp_path, info()), []

    def mark(stream: int, index: int) -> int:
        marked.append((stream, index))
        return 1

    markers = SimpleNamespace(mark=mark, numbers={}, marked={}, driver=None)
    writer.plain_notes.mark_with(markers, lambda device: 70 + device)
    at = Site(9, site(9).kernel, ARGS[:1], line=3, device="cuda:1")
    note(writer, at, 5)
    assert marked == []
    note(writer, at, 5)
    assert marked == [(71, 0)]
    writer.plain_notes.ended(5)
    assert marked == [(71, 0), (71, 1)]
    assert [cell.stream for cell in read_flight(tmp_path / "flight").cells] == [1, 1]
    writer.close()


def test_the_driver_marks_streams_itself(tmp_path: Path) -> None:
    """Once a stream has a number, C++ calls the driver."""
    if noting.LIBRARY.get() is None:
        pytest.skip("only C++ does that")
    writer, wrote = Writer(tmp_path, info()), []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
    def write(stream: int, address: int, value: int, flags: int) -> int:
        wrote.append((stream, address, value))
        return 0

    def mark(stream: int, index: int) -> int:
        markers.numbers[stream] = 2
        return 3

    address = ctypes.cast(write, ctypes.c_void_p).value
    markers = SimpleNamespace(mark=mark, numbers={}, marked={}, driver=(address, 1000))
    writer.plain_notes.mark_with(markers, lambda device: 70 + device)
    at = Site(9, site(9).kernel, ARGS[:1], line=3, device="cuda:1")
    for _ in range(3):
        note(writer, at, 5)
    writer.plain_notes.ended(5)
    assert wrote == [(71, 1008, 2), (71, 1008, 3)]
    assert markers.marked == {71: 3}
    assert [cell.stream for cell in read_flight(tmp_path / "flight").cells] == [3, 3, 3]
    writer.close()


def test_the_driver_marks_graph_calls_on_several_streams(tmp_path: Path) -> None:
    """Those of two threads take turns; a stream that gets no number is left to Python each time."""
    if noting.LIBRARY.get() is None:
        pytest.skip("only C++ does that")
    writer, wrote, asked = Writer(tmp_path, info()), [], []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
    def write(stream: int, address: int, value: int, flags: int) -> int:
        wrote.append((stream, address, value))
        return 0

    def mark(stream: int, index: int) -> int:
        asked.append((stream, index))
        if stream == 72:
            return 0
        return 1 + markers.numbers.setdefault(stream, len(markers.numbers))

    address = ctypes.cast(write, ctypes.c_void_p).value
    markers = SimpleNamespace(mark=mark, numbers={}, marked={}, driver=(address, 1000))
    writer.plain_notes.mark_with(markers, lambda device: 70 + device)
    sites = [Site(9 + i, site(9).kernel, ARGS[:1], line=3, device=f"cuda:{i}") for i in range(3)]
    for _ in range(3):
        for graph_call, at in enumerate(sites):
            note(writer, at, graph_call)
    for graph_call in (1, 0, 2):
        writer.plain_notes.ended(graph_call)
    assert asked == [(70, 0), (71, 1), (72, 2), (72, 5), (72, 8)]
    assert wrote == [(70, 1000, 4), (71, 1004, 5), (71, 1004, 8), (70, 1000, 7)]
    assert markers.marked == {70: 7, 71: 8}
    assert [cell.stream for cell in read_flight(tmp_path / "flight").cells] == [1, 2, 0] * 3
    writer.close()


def test_a_full_ring_makes_the_program_wait(tmp_path: Path) -> None:
    writer, at = Writer(tmp_path, info(), cells=64), site(1)
    for graph_call in range(100):
        for _ in range(20):
            note(writer, at, graph_call)
        writer.plain_notes.ended(graph_call)
    writer.close()
    assert [c.index for c in kernelscope.load(tmp_path).calls] == list(range(2000))


class Bits:
    """A fingerprinter whose slots below `ready_until` are there."""

    has_stats = False
    ready_until = 0

    def ready(self, log: int) -> int:
        return self.ready_until

    def read_many(self, start: int, stop: int) -> tuple[list[int], list[None]]:
        return [slot * 3 for slot in range(start, stop)], []


def test_calls_whose_fingerprints_were_planned(tmp_path: Path) -> None:
    writer, at, bits = Writer(tmp_path, info()), site(1, args=ARGS[:3]), Bits()
    steady = SteadySite(at, (), {0: 0, 1: 1}, {1: 2}, (0, 1), (4, 5), (0, 8))
    writer.slots.planned_by = bits
    for graph_call, first in ((5, 0), (6, 3)):
        writer.planned(graph_call, first, 3)
        note(writer, at, graph_call, steady)
        writer.plain_notes.ended(graph_call)
    bits.ready_until = 3
    writer.flush()
    run = kernelscope.load(tmp_path)
    assert [c.pre_hashes for c in run.calls] == [{0: 0, 1: 3}, {0: None, 1: None}], "not all are there yet"
    bits.ready_until = 6
    writer.close()
    run = kernelscope.load(tmp_path)
    assert [c.pre_hashes for c in run.calls] == [{0: 0, 1: 3}, {0: 9, 1: 12}]
    assert [c.post_hashes for c in run.calls] == [{1: 6}, {1: 15}]
    assert [c.recorded.epochs for c in run.calls] == [(4, 5)] * 2
    first, second = (set(c.recorded.storages) for c in run.calls)
    assert not first & second
    assert run.query("SELECT call, position, before, after FROM hash ORDER BY 1, 2")[1] == [
        (call, position, f"{before:016x}", None if after is None else f"{after:016x}")
        for call, position, before, after in ((0, 0, 0, None), (0, 1, 3, 6), (1, 0, 9, None), (1, 1, 12, 15))
    ]
    columns = columns_of(run, found=True)
    assert columns.has_hashes
    assert columns.found is not None
    assert len({*columns.left.tolist(), *columns.found.tolist()}) == 4


def test_calls_of_a_killed_process_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernelscope.cli import main

    folder = tmp_path / "killed.kscope"
    folder.mkdir()
    writer = Writer(folder, info())
    old, new = site(1), site(2, args=ARGS[:3])
    note(writer, old, 5)
    note(writer, old, 5)
    writer.flush()
    writer._stop.set()  # from now on nothing is written
    writer._wake.set()
    writer._thread.join()
    for _ in range(3):
        note(writer, new, 5)
    writer.flight.close()  # as the end of the process does
    run = kernelscope.load(folder)
    assert len(run) == 5
    assert [c.is_unwritten for c in run.calls] == [False, True, True, True, True]
    assert [c.site.id for c in run.calls] == [1, 1, 2, 2, 2]
    assert run.query("SELECT count(*), count(kernel) FROM call")[1] == [(5, 5)]
    assert run.select(kernel=new.kernel.name, first=3)[0].index == 3
    assert open_run(folder).unwritten == {1, 2, 3, 4}
    assert main(["show", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("(flight recorder only)") == 4
    assert "4 calls from the flight recorder only, without values" in shown
    assert main(["show", "--json", str(folder)]) == 0
    assert capsys.readouterr().out.count('"flight_recorder_only": true') == 4
    assert main(["query", str(folder), "SELECT max(id) FROM calls"]) == 0
    assert "4" in capsys.readouterr().out


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_breaks_off_no_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, at, is_late = Writer(tmp_path, info()), site(1), threading.Event()
    begin, waits = Database.__enter__, iter([True])

    def interrupted(database: Database) -> Database:
        if writer._asked and next(waits, False):
            _thread.interrupt_main()  # as Ctrl-C does
            is_late.wait(10)
        return begin(database)

    monkeypatch.setattr(Database, "__enter__", interrupted)
    for _ in range(3):
        note(writer, at, 5)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    monkeypatch.undo()
    is_late.set()
    note(writer, at, 5)
    writer.plain_notes.ended(5)
    writer.close()
    assert [c.index for c in kernelscope.load(tmp_path).calls] == [0, 1, 2, 3]
