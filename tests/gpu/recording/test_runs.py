"""Runs on disk on a real GPU: faults named exactly, streams that say how far they are, times from CUPTI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.store.flight.crash import crash_in

SRC = Path(__file__).parents[3] / "src"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SRC)}

# 500 launches without a word to the device in between; the one in the middle writes far outside.
FAULTY = """
import sys, torch, triton, triton.language as tl

@triton.jit
def fine(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, at < n) + 1, at < n)

@triton.jit
def wild(x, offset, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + offset + at, 1.0)

@torch.compile
def compiled(x):
    return (x @ x).relu()

x = torch.zeros(1 << 16, device="cuda")
y = torch.ones(256, 256, device="cuda")
fine[(64,)](x, x.numel(), BLOCK=1024)
wild[(1,)](x, 0, BLOCK=128)
for _ in range(3):
    compiled(y)
torch.cuda.synchronize()
bad = int(sys.argv[1])
for number in range(500):
    if number == bad:
        wild[(1,)](x, 1 << 44, BLOCK=128)
    elif number % 10 == 3:
        compiled(y)
    else:
        fine[(64,)](x, x.numel(), BLOCK=1024)
torch.cuda.synchronize()
"""


def faulted(tmp_path: Path, bad: int, number: int) -> dict[str, object]:
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    words = ["run", "--json", "-o", str(tmp_path / f"fault-{number}"), str(script), str(bad)]
    ran = subprocess.run(
        [sys.executable, "-m", "kernelscope", *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode not in (0, 2), ran.stderr
    told = json.loads(ran.stderr.strip().splitlines()[-1])
    assert told["crash"] is not None, ran.stderr
    return dict(told["crash"])


def check_fault(tmp_path: Path, bad: int, number: int) -> None:
    crash = faulted(tmp_path, bad, number)
    executing = crash["executing"]
    assert isinstance(executing, list)
    assert [call["kernel_name"] for call in executing] == ["wild"]
    [call] = executing
    assert call["index"] == crash["completed_through"] + 1  # type: ignore[operator]
    assert "faulty.py:" in call["origin"]
    assert crash["queued"] >= 0  # type: ignore[operator]
    # The second launch of `wild`; the first, before the loop, was fine.
    run = kernelscope.load(tmp_path / f"fault-{number}.kscope")
    launched = [c.index for c in run.select(kernel="wild")]
    assert call["index"] == launched[-1]
    assert len(launched) == 2


@pytest.mark.parametrize("number", range(3))
def test_the_faulting_kernel_is_named(tmp_path: Path, number: int) -> None:
    check_fault(tmp_path, 250 + number, number)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_20_of_20(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as several:
        checks = [several.submit(check_fault, tmp_path, 40 + 20 * n, n) for n in range(20)]
    for check in checks:
        check.result()


def test_hashes_of_before_a_fault_survive_it(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    slowly = "import time\nfor _ in range(20):\n    compiled(y)\n    time.sleep(0.1)\nbad = "
    script.write_text(FAULTY.replace("bad = ", slowly))
    words = ["run", "--values", "hash", "-o", str(tmp_path / "slow"), str(script), "100"]
    ran = subprocess.run([sys.executable, "-m", "kernelscope", *words], env=ENVIRONMENT, check=False)
    assert ran.returncode not in (0, 2)
    run = kernelscope.load(tmp_path / "slow.kscope")
    early = run.select(kernel="triton_poi*")[3:13]
    assert len(early) == 10
    [values] = {tuple(c.post_hashes.values()) for c in early}
    assert values
    assert None not in values
    assert any("hashes could not be read" in finding.message for finding in run.findings)


def test_streams_say_how_far_they_are(tmp_path: Path) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()

    x = torch.ones(64, 64, device="cuda")
    other = torch.cuda.Stream()
    with kernelscope.record(path=tmp_path / "streams") as run:
        for _ in range(5):
            f(x)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            for _ in range(5):
                f(x)
        torch.cuda.synchronize()
    flight = kernelscope.load(tmp_path / "streams.kscope").flight
    assert not [finding for finding in run.findings if finding.kind == "no-stream-markers"]
    newest: dict[int, int] = {}
    for cell in flight.cells:
        assert cell.stream, "every call on the GPU has a stream that tells of it"
        newest[cell.stream] = cell.index + 1
    assert len(newest) == 2
    assert {place: flight.streams[place - 1][1] for place in newest} == newest
    assert crash_in(tmp_path / "streams.kscope") is None


def test_recording_to_disk_never_waits(tmp_path: Path) -> None:
    from torch.profiler import ProfilerActivity, profile

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu().softmax(0)

    x = torch.ones(256, 256, device="cuda")
    with kernelscope.record(path=tmp_path / "quiet"):
        f(x)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            for _ in range(50):
                f(x)
    waits = [
        event.key for event in trace.key_averages() if "Synchronize" in event.key and "Stream" in event.key
    ]
    assert waits == []


def test_times_come_from_the_device(tmp_path: Path) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()

    large, small = torch.ones(4096, 4096, device="cuda"), torch.ones(32, 32, device="cuda")
    for x in (large, small):
        torch._dynamo.mark_static(x)
        f(x)
    torch.cuda.synchronize()
    with kernelscope.record(path=tmp_path / "times", time=True):
        for x in (large, small):
            f(x)
    calls = kernelscope.load(tmp_path / "times.kscope").calls
    assert all(call.time is not None for call in calls), [(c.kernel_name, c.time) for c in calls]
    by_size = {call.arguments[0].tensor.shape[0]: call.time for call in calls if "mm" in call.kernel_name}  # type: ignore[union-attr]
    assert by_size[4096] > 20 * by_size[32]  # type: ignore[operator]
    assert by_size[32] < 100e-6  # type: ignore[operator]  # the kernel alone, not its launch


def test_hashes_are_on_disk_after_closing(tmp_path: Path) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    x = torch.arange(100.0, device="cuda")
    with kernelscope.record(values="hash", path=tmp_path / "hashes") as run:
        f(x)
        f(x)
    calls = kernelscope.load(run.path).calls  # type: ignore[attr-defined]
    assert calls[0].post_hashes
    assert calls[0].post_hashes == calls[1].post_hashes
    assert None not in calls[0].post_hashes.values()


def test_tensors_are_saved(tmp_path: Path) -> None:
    from kernelscope.store.tensors import read_tensor

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    x = torch.arange(100.0, device="cuda")
    with kernelscope.record(values="save", path=tmp_path / "saved") as run:
        y = f(x)
    read = kernelscope.load(run.path)  # type: ignore[attr-defined]
    files = read.saved_tensors(0)
    held = {moment: read_tensor(read.path / "tensors" / file).numpy() for (_, moment), file in files.items()}
    assert (torch.from_numpy(held["before"].copy()) == x.cpu()).all()
    assert (torch.from_numpy(held["after"].copy()) == y.cpu()).all()


def test_saved_tensors_are_as_they_were_although_the_host_does_not_wait(tmp_path: Path) -> None:
    """Each launch overwrites what the one before has left, while the GPU is busy with something else."""
    from kernelscope.store.tensors import read_tensor

    @torch.compile
    def double(x: torch.Tensor) -> None:
        x.mul_(2)

    x = torch.ones(1 << 20, device="cuda")
    double(x.clone())
    with kernelscope.record(values="save", path=tmp_path / "saved") as run:
        double(x)
        torch.cuda.synchronize()
        x.fill_(1)
        torch.cuda._sleep(2_000_000_000)  # about 1 s
        start = torch.cuda.Event()
        start.record()
        for _ in range(10):
            double(x)
        assert not start.query(), "the host did not wait for the GPU"  # type: ignore[no-untyped-call]
    read = kernelscope.load(run.path)  # type: ignore[attr-defined]
    for number, call in enumerate(read.calls[1:]):
        held = {
            moment: read_tensor(read.path / "tensors" / file).numpy()
            for (_, moment), file in read.saved_tensors(call.index).items()
        }
        assert (held["before"] == 2.0**number).all()
        assert (held["after"] == 2.0 ** (number + 1)).all()


def test_times_beside_another_profiler() -> None:
    from torch.profiler import ProfilerActivity, profile

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()

    x = torch.ones(1024, 1024, device="cuda")
    f(x)
    with (
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]),
        kernelscope.record(time=True) as run,
    ):
        for _ in range(3):
            f(x)
    assert [finding.kind for finding in run.findings] == ["times-from-events"]
    assert all(call.time is not None and call.time > 0 for call in run.calls)
