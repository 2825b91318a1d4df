"""The writer meets what it did not expect: the program goes on, and what can be kept is kept."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sample_runs import (
    ARGS,
    GRAPH,
    SPEC,
    Hashes,
    compact_call,
    compiling,
    full_call,
    info,
    site,
)

import kernelscope
from kernelscope.config import Config
from kernelscope.events import Arg, Finding, GraphCall, Site
from kernelscope.probes.bus import BUS
from kernelscope.recording import Recording
from kernelscope.recording.sinks import DiskSink
from kernelscope.store.flight.native_noter import native_numbers
from kernelscope.store.flight.numbers import Numbers
from kernelscope.store.flight.recorder import Flight
from kernelscope.store.writer_thread import Writer


@pytest.mark.timeout(60)
def test_a_number_that_never_got_a_slot_does_not_stop_the_program(tmp_path: Path) -> None:
    """Ctrl-C came after the number was taken: nobody will ever fill that slot."""
    writer, at = Writer(tmp_path, info(), cells=64), site(1, args=ARGS[:3])
    for number in range(300):
        if number in (10, 11, 200):
            next(writer.flight)
        writer.note(compact_call(writer, at, -1))()
    next(writer.flight)
    writer.close()
    expected = [n for n in range(303) if n not in (10, 12, 202)]
    assert [c.index for c in kernelscope.load(tmp_path).calls] == expected


@pytest.mark.timeout(60)
def test_a_slot_that_is_filled_late_is_kept(tmp_path: Path) -> None:
    """The thread that took the number was only slow."""
    writer, at = Writer(tmp_path, info(), cells=64), site(1, args=ARGS[:3])
    call = full_call(next(writer.flight), at)
    for _ in range(30):
        writer.note(compact_call(writer, at, -1))()
    gave_up_waiting = threading.Event()
    while not gave_up_waiting.wait(0.05):
        writer.flush()
        if writer.calls == 30:
            gave_up_waiting.set()
    writer.enter(call)
    writer.leave(call)
    writer.close()
    assert [c.index for c in kernelscope.load(tmp_path).calls] == list(range(31))


def test_text_that_is_no_unicode(tmp_path: Path) -> None:
    """Python names a file that is no UTF-8 with lone surrogates, and exceptions carry such names."""
    writer, at = Writer(tmp_path, info()), site(1, "caf\udce9")
    for number in range(3):
        call = full_call(next(writer.flight), at)
        call.error = "FileNotFoundError: caf\udce9" if number == 1 else ""
        writer.enter(call)
        writer.leave(call)
    writer.mark("range", "\ud800")
    writer.close()
    run = kernelscope.load(tmp_path)
    assert [c.error for c in run.calls] == ["", "FileNotFoundError: caf?", ""]
    assert run.calls[0].kernel_name == "caf?"


def test_a_tensor_of_more_bytes_than_a_number_can_say(tmp_path: Path) -> None:
    wide = Arg("in_ptr0", "in", replace(SPEC, shape=(1 << 40, 1 << 22), stride=(0, 0)), "arg0_1")
    writer, at = Writer(tmp_path, info()), site(1, args=(wide,))
    writer.note(compact_call(writer, at, -1))()
    writer.close()
    assert kernelscope.load(tmp_path).calls[0].arguments[0].tensor == wide.tensor


@pytest.mark.parametrize("at_close", [False, True])
def test_an_unforeseen_error_ends_the_recording_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_close: bool
) -> None:
    writer, at = Writer(tmp_path, info(), cells=64), site(1, args=ARGS[:3])
    writer.note(compact_call(writer, at, -1))()
    writer.flush()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(writer.database, "noted_calls", fail)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(1 if at_close else 500):  # the ring would be full of it
            writer.note(compact_call(writer, at, -1))()
        writer.close()
    assert ["stopped recording" in str(w.message) for w in said] == [True]
    assert len(kernelscope.load(tmp_path)) == 1


def ends(writer: Writer, how: str) -> None:
    if how == "failed":
        with writer.lock, pytest.warns(RuntimeWarning, match="stopped recording"):
            writer.give_up("no room")
    elif how == "closed":
        writer.close()
    else:
        writer.forget()


@pytest.mark.parametrize("how", ["failed", "closed", "forgotten"])
def test_a_writer_that_writes_no_more_keeps_nothing(tmp_path: Path, how: str) -> None:
    """The program goes on for days, and tells it of everything."""
    writer, fingerprinter = Writer(tmp_path, info(), cells=64), Hashes()
    all_that_tells(writer, fingerprinter, site(1), site(2, args=ARGS[:3]))
    ends(writer, how)
    for number in range(3, 100, 2):
        all_that_tells(writer, fingerprinter, site(number), site(number + 1, args=ARGS[:3]))
    kept = {name: value for owner in (writer, writer.flight) for name, value in vars(owner).items()}
    counts = {name: len(value) for name, value in kept.items() if isinstance(value, list | dict | set)}
    del counts["_step_starts"]  # as many as steps stay
    del counts["noted"]  # numbers of sites, as long as there are notes
    assert {name: count for name, count in counts.items() if count} == {}
    assert len(counts) > 10
    writer.close()


def all_that_tells(writer: Writer, fingerprinter: Hashes, full: Site, noted: Site) -> None:
    """Everything that a recording tells a writer."""
    call = full_call(next(writer.flight), full, fingerprinter)
    writer.enter(call)
    writer.leave(call)
    end = writer.note(compact_call(writer, noted))
    writer.note_failed(0, noted.line, "RuntimeError: no")
    end()
    writer.graph_call(GraphCall(call.index, GRAPH, 7, 0, "forward", 1))
    writer.mark("step", "1")
    writer.finding(Finding("kind", "message"))
    writer.set_metadata("key", "value")
    writer.duration(call.index, 5)
    writer.tensor(call.index, 0, "pre", "file")
    for record in compiling():
        writer.compiled.append(record)


def test_warnings_that_are_errors_do_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(tmp_path, info())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with writer.lock:
            writer.give_up("no room")
        writer.close()
    assert "stopped recording" in capsys.readouterr().err


def test_a_late_launch_does_not_write_into_the_programs_files(tmp_path: Path) -> None:
    """Once the recording has closed its file, the number of that file is free for the program."""
    flight = Flight(tmp_path / "flight", 1, cells=16)
    number = flight._file
    flight.close()
    with (tmp_path / "own").open("wb") as own:
        assert own.fileno() == number
        flight.meet(site(1))
    assert (tmp_path / "own").read_bytes() == b""


@pytest.mark.parametrize("numbers", [native_numbers, lambda cells: None], ids=["native", "python"])
def test_the_next_calls_number(tmp_path: Path, numbers: Callable[[int], Numbers | None]) -> None:
    """It can be read without taking it, whoever takes numbers meanwhile, one or many."""
    flight = Flight(tmp_path / "flight", 1, cells=16, numbers=numbers(16))
    assert [(flight.next_call, flight.next_call, next(flight)) for _ in range(40)] == [
        (index, index, index) for index in range(40)
    ]
    threads = [threading.Thread(target=lambda: [next(flight) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert flight.next_call == 2040
    flight.next_cell.take(1 << 40)
    assert flight.next_call == next(flight) == 2040 + (1 << 40)
    flight.close()


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[Recording]:
    """A recording of all steps whose disk has failed in the first one."""
    recording = Recording(Config(steps=(0, 1000)), tmp_path)
    recording.open()
    assert not recording.is_paused
    assert isinstance(recording.sink, DiskSink)
    ends(recording.sink.writer, "failed")
    assert recording.is_paused
    yield recording
    recording.close()


def test_a_failed_recording_keeps_no_findings(failed: Recording) -> None:
    before = list(failed.noted)
    for number in range(100):
        BUS.finding(Finding("late", f"number {number}"))
    assert failed.noted == before


def test_a_failed_recording_does_not_go_on_at_the_next_step(failed: Recording) -> None:
    """The program would go on at the pace of a recorded one, and nothing would be written."""
    BUS.step()
    assert failed.is_paused, "--steps"
    failed.begin_step(7)
    assert failed.is_paused, "a trainer's steps"
