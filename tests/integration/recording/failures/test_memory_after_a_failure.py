"""A recording whose writer has failed keeps nothing, and the program goes on at its own pace."""

from __future__ import annotations

import gc
import shutil
import sqlite3
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope.recording.open_recordings import OPEN
from kernelscope.recording.sinks import DiskSink
from kernelscope.store import recent_calls
from kernelscope.store.run_db import used_slots
from kernelscope.store.writer_thread import Writer
from kernelscope.values import watch

X = torch.linspace(0, 1, 32).view(4, 8)
LOOPS, LEAST = 400, 64 << 10  # bytes: less is what comes and goes
Step = Callable[[], Any]


def full_disk(writer: Writer) -> None:
    [[pages]] = writer.database.db.execute("PRAGMA page_count")
    writer.database.db.execute(f"PRAGMA max_page_count = {pages}")


def folder_removed(writer: Writer) -> None:
    writer.database.db.execute("DROP TABLE calls")
    shutil.rmtree(writer.folder)


def permission_lost(writer: Writer) -> None:
    writer.database.db.execute("PRAGMA query_only = 1")


def database_locked(writer: Writer) -> None:
    writer.database.db.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(writer.folder / "run.db", check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    writer.holder = other  # type: ignore[attr-defined]  # as long as the writer


@pytest.fixture(scope="module")
def step() -> Step:
    torch._dynamo.reset()
    w = torch.eye(8, requires_grad=True)

    @torch.compile
    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mm(w).relu(), x.sin()], 1).square().sum()

    def one() -> torch.Tensor:
        w.grad = None
        result = loss(X)
        result.backward()
        kernelscope.step()
        return result.detach()

    for _ in range(3):
        one()
    return one


def growth(step: Step, warm_up: int = 20) -> tuple[int, int]:
    """Bytes that Python keeps after so many steps, and after three times as many."""
    for _ in range(warm_up):
        step()
    kept = []
    tracemalloc.start()
    try:
        for loops in (LOOPS, 2 * LOOPS):
            for _ in range(loops):
                step()
            for recording in OPEN:
                if isinstance(recording.sink, DiskSink):
                    recording.sink.writer.flush()  # what waits for it now is not kept
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return kept[0], kept[1]


def writer_of_the_recording() -> Writer:
    [recording] = OPEN
    assert isinstance(recording.sink, DiskSink)
    return recording.sink.writer


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:kernelscope stopped recording")
@pytest.mark.parametrize(
    ("fail", "time"),
    [
        (full_disk, False),
        (full_disk, True),
        (folder_removed, False),
        (permission_lost, False),
        (database_locked, False),
    ],
)
def test_a_failed_writer_keeps_nothing(
    step: Step, tmp_path: Path, fail: Callable[[Writer], None], time: bool
) -> None:
    expected = step()
    with kernelscope.record(values="hash", path=tmp_path / "run", time=time):
        step()
        writer = writer_of_the_recording()
        writer.flush()
        with writer.lock:
            fail(writer)
        for _ in range(10_000):
            step()
            if writer.failure:
                break
        assert writer.failure
        first, second = growth(step)
        assert torch.equal(step(), expected)
    assert second - first < LEAST, f"{first} bytes after {LOOPS} steps, {second} after {3 * LOOPS}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["keep_last", "to disk", "watch"])
def test_a_long_loop_keeps_no_more_the_longer_it_is(
    step: Step, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once what is kept for a moment is full: the newest notes of a watch, texts and hashes of the writer."""
    monkeypatch.setattr(recent_calls, "KEPT_NOTES", 512)
    monkeypatch.setattr(used_slots, "NEWEST_SLOTS", 512)
    recorded = {
        "keep_last": lambda: kernelscope.record(values="hash", path=tmp_path / "run", keep_last=5),
        "to disk": lambda: kernelscope.record(values="hash", path=tmp_path / "run"),
        "watch": lambda: watch("nan"),
    }[how]
    with recorded():
        first, second = growth(step, warm_up=1200)
    assert second - first < 3 * LEAST, f"{first} bytes after {LOOPS} steps, {second} after {3 * LOOPS}"
