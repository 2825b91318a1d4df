"""Runs that are long: what --keep-last lets go of, and what `show` need not read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.sample_runs import Hashes, full_call, info, site

import kernelscope
from kernelscope.cli import main
from kernelscope.store import tensors
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import TensorSaver, read_tensor
from kernelscope.store.writer_thread import Writer

PER_STEP = 300


def hashed(folder: Path, steps: int, *, keep_last: int = 0) -> Writer:
    """Each call takes two fingerprints; every tenth changes what it only reads."""
    folder.mkdir(exist_ok=True)
    writer, at, fingerprinter = Writer(folder, info(), keep_last=keep_last), site(1), Hashes()
    for _ in range(steps):
        for _ in range(PER_STEP):
            call = full_call(next(writer.flight), at, fingerprinter)
            if call.index % 10 == 5:
                call.post = {0: 2 * call.index + 1, 1: 2 * call.index + 1}
            writer.enter(call)
            writer.leave(call)
        writer.flush()
        writer.mark("step", "")
    return writer


def test_keep_last_lets_go_of_hashes_too(tmp_path: Path) -> None:
    hashed(tmp_path, 40, keep_last=2).close()
    run = kernelscope.load(tmp_path)
    assert [c.index for c in run.calls] == list(range(38 * PER_STEP, 40 * PER_STEP))
    assert all(c.post_hashes[1] == Hashes().read(c.recorded.post[1]) for c in run.calls)
    _, [(kept,)] = run.query("SELECT count(*) FROM fingerprints")
    assert kept < 4096 + 3 * 2 * PER_STEP, "of 40 steps"


def saved(writer: Any, index: int, tensor: torch.Tensor, saver: TensorSaver) -> None:
    call = SimpleNamespace(index=index, pre={0: 1000 + index}, post={})
    launch = SimpleNamespace(flat=[tensor], point=SimpleNamespace(tensors=(0,), written=()), uninitialised=())
    saver.before(call, launch)  # type: ignore[arg-type]


def test_keep_last_lets_go_of_saved_tensors_too(tmp_path: Path) -> None:
    writer = Writer(tmp_path, info(), keep_last=1)
    saver = TensorSaver(writer, 1 << 30, nullcontext)
    weight = torch.ones(5)
    for step in range(6):
        saved(writer, next(writer.flight), weight, saver)
        saved(writer, next(writer.flight), torch.full((5,), float(step)) + 2, saver)
        writer.mark("step", "")
    writer.close()
    held = sorted(read_tensor(f).numpy()[0] for f in (tmp_path / "tensors").iterdir())
    assert held == [1.0, 7.0]  # the weight, which every step has, and the last step


def test_what_is_used_is_dropped_last(tmp_path: Path) -> None:
    writer = Writer(tmp_path, info())
    saver = TensorSaver(writer, 2000, nullcontext)  # room for three
    weight = torch.ones(64)
    for number in range(3):
        saved(writer, 2 * number, weight, saver)
        saved(writer, 2 * number + 1, torch.full((64,), number + 2.0), saver)
    writer.close()
    held = {float(read_tensor(f).numpy()[0]) for f in (tmp_path / "tensors").iterdir()}
    assert held == {1.0, 3.0, 4.0}


def test_saved_tensors_are_as_they_were_and_the_program_does_not_wait(tmp_path: Path) -> None:
    writer = Writer(tmp_path, info())
    saver, tensor = TensorSaver(writer, 1 << 30, nullcontext), torch.zeros(1000)
    with writer.lock:  # nothing can be written meanwhile
        for value in range(20):
            tensor.fill_(value)
            saved(writer, next(writer.flight), tensor, saver)
        assert not list((tmp_path / "tensors").iterdir())
    writer.flush()
    files = {float(read_tensor(f).numpy()[-1]) for f in (tmp_path / "tensors").iterdir()}
    assert files == set(range(20))
    writer.close()


def test_the_inputs_of_the_one_call_that_is_wanted_are_there_before_its_launch(tmp_path: Path) -> None:
    writer = Writer(tmp_path, info())
    saver = TensorSaver(writer, 1 << 30, nullcontext, only=1)
    for value in range(3):
        saved(writer, next(writer.flight), torch.full((10,), float(value)), saver)
        held = [float(read_tensor(f).numpy()[0]) for f in (tmp_path / "tensors").iterdir()]
        assert held == ([1.0] if value else [])
    writer.close()


def test_the_program_waits_when_many_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "MOST_BYTES_WAITING", 10_000)
    writer = Writer(tmp_path, info())
    saver, most = TensorSaver(writer, 1 << 30, nullcontext), 0
    for value in range(50):
        saved(writer, next(writer.flight), torch.full((1000,), float(value)), saver)
        most = max(most, saver._bytes_waiting)
    assert most <= 12_000
    writer.close()
    assert len(list((tmp_path / "tensors").iterdir())) == 50
    assert saver._bytes_waiting == 0


def test_show_compares_only_the_hashes_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed(tmp_path / "x.kscope", 10).close()
    read_calls, select, read = StoredRun.read_calls, StoredRun.select, []

    def some(run: StoredRun, indices: Sequence[int] | None = None) -> Any:
        assert indices is not None, "all calls are read"
        return read_calls(run, indices)

    def counted(run: StoredRun, **wanted: Any) -> Any:
        found = select(run, **wanted)
        read.append(len(found))
        return found

    monkeypatch.setattr(StoredRun, "read_calls", some)
    monkeypatch.setattr(StoredRun, "select", counted)
    assert main(["show", str(tmp_path / "x.kscope"), "--limit", "20"]) == 0
    out = capsys.readouterr().out
    assert out.count("[undeclared-write]") == 2
    assert "[undeclared-write] call 15 cpp_fused_relu_0 changed in_ptr0" in out
    assert "compared the hashes of 20 calls; --limit 0 compares all 3,000" in out
    assert main(["show", str(tmp_path / "x.kscope"), "--changed", "--limit", "3"]) == 0
    out = capsys.readouterr().out
    assert "… more: --first 26" in out
    assert sum(read) <= 21 + 1000
    monkeypatch.undo()
    assert main(["show", str(tmp_path / "x.kscope"), "--changed", "--limit", "0"]) == 0
    assert "\n301 findings:" in capsys.readouterr().out  # and a NaN
