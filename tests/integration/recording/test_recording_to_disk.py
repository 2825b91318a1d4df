"""`record(path=…)` with real compiled code: reads as a run in memory does, live and afterwards."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelscope
from kernelscope import RunError
from kernelscope.store.flight.ending import ending_of
from kernelscope.store.tensors import read_tensor

Step = Callable[[], Any]


@pytest.fixture(scope="module")
def step() -> Iterator[Step]:
    """A compiled training step: forward, backward, optimizer."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled, x = torch.compile(model), torch.randn(4, 16)

    def step() -> None:
        compiled(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    step()
    yield step
    torch._dynamo.reset()  # what it has seen here would make later compiles dynamic


def facts(call: Any) -> tuple[Any, ...]:
    graph = call.graph and (call.graph.id, call.graph.name, call.graph.direction)
    return (
        call.index, call.kernel_name, call.kind, call.source, call.origin, call.step, call.phase, graph,
        call.roles, call.arg_names, call.uninitialised, call.error, call.grid, call.config, call.device,
    )  # fmt: skip


@pytest.mark.parametrize("values", ["off", "hash"])
def test_reads_as_in_memory(step: Step, tmp_path: Path, values: str) -> None:
    with (
        kernelscope.record(values=values) as memory,
        kernelscope.record(values=values, path=tmp_path / "x") as disk,
    ):
        for _ in range(3):
            step()
    loaded = kernelscope.load(tmp_path / "x.kscope")
    expected = [facts(c) for c in memory.calls]
    assert len(expected) > 12
    assert [facts(c) for c in disk.calls] == expected
    assert [facts(c) for c in loaded.calls] == expected
    assert [c.stack for c in loaded.calls] == [c.stack for c in memory.calls]
    assert str(loaded) == str(disk)
    assert [c.post_hashes for c in loaded.calls] == [c.post_hashes for c in memory.calls]
    assert [c.pre_hashes for c in loaded.calls] == [c.pre_hashes for c in memory.calls]
    assert [(m.index, m.text) for m in loaded.marks] == [(m.index, m.text) for m in memory.marks]
    assert loaded.is_closed


def test_alone_and_noted(step: Step, tmp_path: Path) -> None:
    """Nobody else listens, so launches go to the ring without a look at them."""
    with kernelscope.record() as memory:
        for _ in range(4):
            step()
    with kernelscope.record(path=tmp_path / "x") as disk:
        for _ in range(2):
            step()
        assert [facts(c) for c in disk.calls] == [facts(c) for c in memory.calls][: len(disk)]  # live
        for _ in range(2):
            step()
    assert [facts(c) for c in disk.calls] == [facts(c) for c in memory.calls]


def test_the_program_computes_the_same(tmp_path: Path) -> None:
    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).softmax(0)

    x = torch.randn(16, 16)
    bare = f(x)
    with kernelscope.record(path=tmp_path / "x", values="save", time=True):
        recorded = f(x)
    assert torch.equal(bare, recorded)


def test_steps_and_times(step: Step, tmp_path: Path) -> None:
    for path in (tmp_path / "x", None):
        with kernelscope.record(path=path, steps=(2, 4), time=True) as run:
            for _ in range(6):
                step()
        assert sorted({c.step for c in run.calls}) == [2, 3]
        assert all(c.time is not None and 0 < c.time < 60 for c in run.calls)


def test_keeps_the_last_steps(step: Step, tmp_path: Path) -> None:
    with kernelscope.record(path=tmp_path / "x", keep_last=2) as run:
        for _ in range(6):
            step()
            run.close()
            len(run)  # flushes, as time would
    calls = run.calls
    assert sorted({c.step for c in calls}) == [4, 5]
    assert [c.index for c in calls] == list(range(calls[0].index, calls[-1].index + 1))
    assert all(c.graph is not None for c in calls if c.kind == "cpp")


def test_stops_at_a_call(step: Step, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kernelscope.record(path=tmp_path / "x", stop_at=3) as run, pytest.raises(SystemExit) as stopped:
        step()
    assert stopped.value.code == 0
    assert [c.index for c in run.calls] == [0, 1, 2, 3]
    assert "stopping after call 3" in capsys.readouterr().err


def test_an_exception_of_a_kernel(tmp_path: Path) -> None:
    @torch.library.custom_op("to_disk::touchy", mutates_args=())
    def touchy(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 100:
            raise RuntimeError("too much")
        return x + 1

    @touchy.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    f = torch.compile(lambda x: touchy(x.sin().abs() * 2))
    with kernelscope.record(path=tmp_path / "x") as run:
        for n in (1, 1, 400):
            torch._dynamo.mark_static(x := torch.ones(n))
            if n == 400:
                with pytest.raises(RuntimeError, match="too much"):
                    f(x)
            else:
                f(x)
    assert [c.error for c in run.calls if c.error] == ["RuntimeError: too much"]
    assert run.calls[-1].error


def test_saved_tensors(tmp_path: Path) -> None:
    f = torch.compile(lambda x, w: (x @ w).relu())
    x, w = torch.randn(8, 32), torch.randn(32, 16)
    with kernelscope.record(path=tmp_path / "x", values="save") as run:
        y = f(x, w)
        f(x, w)
    run = kernelscope.load(tmp_path / "x.kscope")
    first = run.calls[0]
    saved = run.saved_tensors(0)
    by_name = {first.arg_names[i]: file for (i, moment), file in saved.items() if moment == "before"}
    folder = run.path / "tensors"
    held = {
        tuple(read_tensor(folder / file).shape): read_tensor(folder / file).numpy()
        for file in by_name.values()
    }
    assert torch.equal(torch.from_numpy(held[8, 32].copy()), x)
    assert torch.equal(torch.from_numpy(held[32, 16].copy()), w)
    last = run.saved_tensors(1)
    [result] = {file for (_, moment), file in last.items() if moment == "after"}
    assert torch.equal(torch.from_numpy(read_tensor(folder / result).numpy().copy()), y)
    assert result == f"{next(iter(run.calls[1].post_hashes.values())):016x}.safetensors" or len(last) > 1
    assert run.saved_tensors(2) == saved  # the same contents, so the same files
    assert len(list(folder.iterdir())) == 4


def test_saved_tensors_stay_within_their_budget(tmp_path: Path) -> None:
    f = torch.compile(lambda x: x.sin())
    with kernelscope.record(path=tmp_path / "x", values="save", max_tensors=20_000) as run:
        for number in range(10):
            f(torch.full((1000,), float(number)))
        f(torch.ones(100_000))
    assert sum(file.stat().st_size for file in (tmp_path / "x.kscope" / "tensors").iterdir()) <= 20_000
    assert {finding.kind for finding in run.findings} == {"tensors-dropped", "tensor-not-saved"}
    loaded = kernelscope.load(tmp_path / "x.kscope")
    gone = next(iter(loaded.saved_tensors(0).values()))
    with pytest.raises(RunError, match="was deleted to stay within"):
        read_tensor(loaded.path / "tensors" / gone)


def test_two_writers_on_one_name(step: Step, tmp_path: Path) -> None:
    with kernelscope.record(path=tmp_path / "x") as run:
        with pytest.raises(RunError, match="already exists"), kernelscope.record(path=tmp_path / "x"):
            pytest.fail("a run was written over")
        step()
    assert len(run) > 0


def test_a_disk_that_fills_up(step: Step, tmp_path: Path) -> None:
    """One warning; the program goes on, and what was written can be read."""
    disk = tmp_path / "small"
    disk.mkdir()
    mount = shutil.which("mount")
    if (
        not mount
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=False).returncode
    ):
        pytest.skip("only root can mount a small disk")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            # Python 3.13 warns of connections that other tests have left to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            with kernelscope.record(path=disk / "x", values="hash") as run:
                step()
                len(run)
                (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free - 8192))
                deadline = time.monotonic() + 60
                while not said and time.monotonic() < deadline:
                    step()
                for _ in range(3):
                    step()
        [warning] = said
        assert "stopped recording" in str(warning.message)
        assert len(kernelscope.load(disk / "x.kscope")) > 0
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_threads(tmp_path: Path) -> None:
    f = torch.compile(lambda x: (x @ x).relu())
    x = torch.ones(8, 8)
    f(x)
    together = threading.Barrier(3)  # a thread that begins when another has ended may get its number

    def work() -> None:
        together.wait()
        for _ in range(100):
            f(x)
        together.wait()

    with kernelscope.record(path=tmp_path / "x") as run:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = run.calls
    assert [c.index for c in calls] == list(range(600))
    assert len({c.thread for c in calls}) == 3
    assert {c.kernel_name for c in calls[::2]} | {c.kernel_name for c in calls[1::2]} == {
        c.kernel_name for c in calls
    }


def test_settings_without_a_folder() -> None:
    for wrong in ({"values": "save"}, {"keep_last": 3}):
        with pytest.raises(ValueError, match="need a path"), kernelscope.record(**wrong):  # type: ignore[arg-type]
            pytest.fail("recorded")
    for wrong in ({"steps": (5, 3)}, {"stop_at": -1}, {"max_tensors": "2GB"}):
        with pytest.raises(ValueError, match="record"), kernelscope.record(**wrong):  # type: ignore[arg-type]
            pytest.fail("recorded")


class Lost(RuntimeError):
    pass


def test_the_exception_that_leaves_the_block_is_noted(tmp_path: Path) -> None:
    def training() -> None:
        with kernelscope.record(path=tmp_path / "x", values="hash", ops="all"):
            torch.ones(3).add(1)
            raise Lost("the other rank\nis gone")

    with pytest.raises(Lost):
        training()
    run = kernelscope.load(tmp_path / "x.kscope")
    assert run.is_closed
    assert run.exception == "Lost: the other rank"
    ending = ending_of(tmp_path / "x.kscope")
    assert ending.kind == "exception"
    assert ending.headline.startswith("the recorded block ended with an exception at ")
    assert "test_recording_to_disk.py" in ending.headline
    with kernelscope.record(path=tmp_path / "y", values="hash", ops="all"):
        torch.ones(3).add(1)
    assert not kernelscope.load(tmp_path / "y.kscope").exception


def test_an_exception_that_cannot_be_told_leaves_the_block_as_it_is(tmp_path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(Mute), kernelscope.record(path=tmp_path / "x"):
        raise Mute
    assert kernelscope.load(tmp_path / "x.kscope").is_closed
