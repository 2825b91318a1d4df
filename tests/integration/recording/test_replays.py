"""A replay of a CUDA graph is one record. Kernels of a CPU stand for its own here; see also tests/gpu."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kernelscope
from kernelscope import KernelCall, Run
from kernelscope.events import Call, Finding, Replay
from kernelscope.fingerprint import captured as captured_fingerprints
from kernelscope.fingerprint.captured import CapturedFingerprints
from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Capture, Launch, Template
from kernelscope.probes.listener import Listener
from kernelscope.recording import Recording
from kernelscope.recording.cuda_graphs import CapturedValues
from kernelscope.store.columns import columns_of
from kernelscope.store.flight.native_noter import LIBRARY
from kernelscope.store.stored_run import StoredRun


class Capturing(Listener):
    """Takes launches for those of a CUDA graph that a recording is going to see replayed."""

    def __init__(self, recording: Recording) -> None:
        self.capture, self.recording = Capture(), recording
        if recording.fingerprinter is not None:
            fingerprints = CapturedFingerprints(recording.fingerprinter, torch.device("cpu"))
            self.capture.kept[recording] = CapturedValues(fingerprints, recording.config.verify, print)

    def before(self, launch: Launch) -> Any:
        kept = self.capture.kept.get(self.recording)
        return kept.before(launch) if kept is not None else "seen"

    def after(self, launch: Launch, call: Any) -> None:
        if call != "seen":
            call.finish(launch)
        template = Template(launch)
        template.calls = {self.recording: call}
        self.capture.templates.append(template)

    def finding(self, finding: Finding) -> None:
        raise AssertionError(finding.message)


@pytest.fixture(scope="module")
def program() -> Callable[[], torch.Tensor]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w = torch.randn(17, 33), torch.randn(33, 5)

    @torch.compile
    def f() -> torch.Tensor:
        y = (x @ w).relu()
        return (y.sum(0) * y.cumsum(1)).softmax(-1)

    f()
    return f


@pytest.fixture(autouse=True)
def _a_device_that_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    monkeypatch.setattr(captured_fingerprints, "during_captures", nullcontext)


def captured(recording: Recording, program: Callable[[], Any]) -> Capture:
    """The launches of the program, which the recording itself sees too."""
    capturing = Capturing(recording)
    BUS.attach(capturing)
    program()
    for kept in capturing.capture.kept.values():
        kept.end()
    BUS.detach(capturing)
    return capturing.capture


def replay(recording: Recording, capture: Capture, times: int = 1) -> None:
    for _ in range(times):
        recording.replayed(capture, 7, -1)
        capture.replays += 1


def told(call: KernelCall) -> tuple[Any, ...]:
    return (
        call.kernel_name, call.pre_hashes, call.post_hashes, call.args, call.phase,
        call.recorded.uninitialised, call.recorded.scalars, call.recorded.offsets,
    )  # fmt: skip


def memory_of(calls: list[KernelCall]) -> list[list[int]]:
    """Storages by the order in which they come."""
    numbers: dict[int, int] = {}
    return [[numbers.setdefault(s, len(numbers)) for s in call.recorded.storages] for call in calls]


def check(run: Run, count: int, replays: int) -> None:
    calls = run.calls
    assert len(run) == len(calls) == count * (1 + replays) + 1
    seen, others = calls[:count], [c for c in calls[count:] if c.replay is not None]
    for number in range(replays):
        mine = others[number * count : (number + 1) * count]
        assert [told(c) for c in mine] == [told(c) for c in seen]
        assert memory_of(mine) == memory_of(seen)
        assert {c.replay for c in mine} == {number}
        assert {c.stream for c in mine} == {7}
        assert {c.producer for c in mine} == {"replay"}
    storages = [{s for c in others[i : i + count] for s in c.recorded.storages} for i in (0, count)]
    assert not storages[0] & storages[1], "what another replay did to the memory is not known"
    assert [c.index for c in calls] == list(range(len(calls)))


@pytest.mark.parametrize("values", ["off", "hash", "stats"])
@pytest.mark.parametrize("sink", ["memory", "disk"])
def test_a_replay_is_a_call_of_each_of_its_launches(
    program: Callable[[], torch.Tensor], tmp_path: Path, values: str, sink: str
) -> None:
    path, between = tmp_path / "run" if sink == "disk" else None, torch.zeros(3)
    with kernelscope.record(values=values, path=path, ops="all") as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        count = len(capture.templates)
        assert count >= 3
        replay(recording, capture, 2)
        between.neg()
        replay(recording, capture, 3)
        assert len(run) >= count
    check(run, count, 5)
    if sink == "disk":
        assert isinstance(run, StoredRun)
        check(kernelscope.load(run.path), count, 5)
        rows = run.rows("SELECT call, slot FROM replays")
        assert len(rows) == 5
        if values != "off":
            [(hashes,)] = run.rows("SELECT count(*) FROM hash WHERE call >= ?", (count,))
            [(seen,)] = run.rows("SELECT count(*) FROM hash WHERE call < ?", (count,))
            assert hashes >= 5 * seen > 0
    copy = kernelscope.load(run.save(tmp_path / "copy"))
    check(copy, count, 5)
    for found in (False, True):
        mine, other = columns_of(run, found=found), columns_of(copy, found=found)
        assert np.array_equal(mine.left, other.left)
        assert np.array_equal(mine.site.argsort(), other.site.argsort())
        assert not found or np.array_equal(mine.found, other.found)  # type: ignore[arg-type]


def test_in_memory_a_replay_is_one_object(program: Callable[[], torch.Tensor]) -> None:
    with kernelscope.record() as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        count = len(capture.templates)
        replay(recording, capture, 3)
        entries = run.entries  # type: ignore[attr-defined]
        assert [type(e) for e in entries[count:]] == [Replay] * 3
        assert len(run) == 4 * count
        assert all(type(e) is Call for e in run.records_of_calls[count:])
        replay(recording, capture)
        program()
        replay(recording, capture)
        assert len(run) == 7 * count
    assert [c.replay for c in run.calls[4 * count :]] == [3] * count + [None] * count + [4] * count
    assert [c.index for c in run.calls] == list(range(7 * count))


def test_replays_after_a_recording_has_closed_are_no_part_of_it(program: Callable[[], torch.Tensor]) -> None:
    with kernelscope.record() as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        count = len(capture.templates)
        replay(recording, capture, 2)
    replay(recording, capture, 3)
    assert len(run) == len(run.calls) == 3 * count
    recording.open()
    replay(recording, capture)
    assert len(run) == 4 * count
    recording.close()
    assert [c.replay for c in run.calls[count:]] == [0] * count + [1] * count + [5] * count


def test_more_launches_than_the_ring_has_cells(
    program: Callable[[], torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelscope.recording import sinks

    small = lambda *given, **named: sinks_writer(*given, **named, cells=64)  # noqa: E731
    sinks_writer = sinks.Writer
    monkeypatch.setattr(sinks, "Writer", small)
    with kernelscope.record(path=tmp_path / "run") as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        count = len(capture.templates)
        capture.templates *= 40
        assert len(capture.templates) > 64
        replay(recording, capture, 3)
    assert len(run) == count * 121
    names = [c.kernel_name for c in run.calls]
    assert names == names[:count] * 121


@pytest.mark.parametrize("native", [True, False])
def test_a_crash_leaves_the_calls_of_replays_in_the_flight_recorder(
    program: Callable[[], torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    from kernelscope.store import writer_thread
    from kernelscope.store.flight.reader import read_flight

    if not native:
        monkeypatch.setattr(LIBRARY, "get", lambda: None)
    elif LIBRARY.get() is None:
        pytest.skip("no compiler")
    monkeypatch.setattr(writer_thread, "TICK", 60.0)
    with kernelscope.record(path=tmp_path / "run") as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        replay(recording, capture, 2)
        assert isinstance(run, StoredRun)
        log = read_flight(run.path / "flight")
        count = len(capture.templates)
        assert [cell.index for cell in log.cells] == list(range(3 * count))
        assert [c.site for c in log.cells[count:]] == [t.site.id for t in capture.templates] * 2
        assert all(cell.is_full and not cell.is_executing for cell in log.cells[count:])


def test_the_time_of_a_replay_does_not_grow_with_its_launches(
    program: Callable[[], torch.Tensor], tmp_path: Path
) -> None:
    """A hundred times the launches, in memory: less than twice the time."""
    with kernelscope.record() as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        few, many = captured(recording, program), captured(recording, program)
        many.templates *= 100

        def seconds(capture: Capture) -> float:
            replay(recording, capture, 3)
            best = float("inf")
            for _ in range(20):
                start = time.thread_time()
                replay(recording, capture, 20)
                best = min(best, time.thread_time() - start)
            return best

        short, long = seconds(few), seconds(many)
        assert long < 2 * short, (short, long)
    assert len(run) > 100_000


def test_what_is_captured_is_read_together_unless_it_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that works in place comes after what it overwrites has been read."""
    torch._dynamo.reset()
    x = torch.randn(8, 8)

    @torch.compile
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(x @ x)
        return (y @ y).cumsum(0)

    y = torch.zeros(8, 8)
    f(x, y)
    with kernelscope.record(values="hash") as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        taken: list[int] = []
        enqueue = recording.fingerprinter.enqueue  # type: ignore[union-attr]

        def counted(log: Any, first: int, tensors: Any) -> None:
            if isinstance(log, captured_fingerprints.CapturedRows):
                taken.append(len(tensors))
            enqueue(log, first, tensors)

        monkeypatch.setattr(recording.fingerprinter, "enqueue", counted)
        capture = captured(recording, lambda: f(x, y))
        count = len(capture.templates)
        replay(recording, capture)
    assert [told(c) for c in run.calls[count:]] == [told(c) for c in run.calls[:count]]
    assert len(taken) < count, taken
    assert len(taken) > 1, "y was read before it was overwritten"


def test_only_kernels_that_are_wanted(program: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    with kernelscope.record(kernel="extern*", path=tmp_path / "run") as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        replay(recording, capture, 2)
    names = [c.kernel_name for c in run.calls]
    assert names
    assert all(name.startswith("extern") for name in names)
    assert [c.replay for c in run.calls] == [None] * (len(names) // 3) + [0] * (len(names) // 3) + [1] * (
        len(names) // 3
    )


def test_keeping_only_the_last_steps(program: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    with kernelscope.record(values="hash", keep_last=2, path=tmp_path / "run") as run:
        [recording] = BUS.listeners
        assert isinstance(recording, Recording)
        capture = captured(recording, program)
        for _ in range(6):
            kernelscope.step()
            replay(recording, capture)
            assert isinstance(run, StoredRun)
            run.sync()
    assert {c.step for c in run.calls} == {4, 5, 6}
    assert all(c.post_hashes for c in run.calls)
    assert len(run.rows("SELECT * FROM replays")) <= 3
