"""What happens when a run cannot be written: full, sealed and shared disks, damaged files, lost devices."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.sample_runs import (
    ARGS,
    compact_call,
    full_call,
    info,
    site,
    write_sample,
)

import kernelscope
from kernelscope import RunError
from kernelscope.store import folder
from kernelscope.store.flight.crash import crash_of
from kernelscope.store.tensors import read_tensor
from kernelscope.store.writer_thread import Writer


@contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    path.mkdir()
    mount = shutil.which("mount")
    made = (
        mount
        and subprocess.run([mount, "-t", "tmpfs", "-o", options, "tmpfs", path], check=False).returncode == 0
    )
    if not made:
        pytest.skip("only root can mount a small disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_a_full_disk_stops_the_recording_and_nothing_else(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=12m") as disk:
        writer, at = Writer(disk, info()), site(1, args=ARGS[:3])
        failures = []
        writer.on_failure = lambda: failures.append(1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(400_000):
                writer.note(compact_call(writer, at, -1))()
            writer.close()
        # Not those about files of other tests, whose names may have kernelscope in them.
        ours = [w for w in said if not issubclass(w.category, ResourceWarning)]
        [warning] = [w for w in ours if "kernelscope" in str(w.message)]
        assert "stopped recording" in str(warning.message)
        assert "full" in str(warning.message)
        assert failures == [1]
        run = kernelscope.load(disk)
        calls = run.calls
        assert [c.index for c in calls] == list(range(len(calls)))  # what was written before is all there
        assert len(calls) > 0
        assert run.flight.cells


def test_no_room_from_the_start(tmp_path: Path) -> None:
    with mounted(tmp_path / "tiny", "size=64k") as disk:
        with pytest.raises(RunError, match="cannot hold a run"):
            Writer(disk, info())
        assert not list(disk.iterdir())  # no half of a run is left


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    sealed = mounted(tmp_path / "sealed", "ro,size=1m")
    with sealed as disk, pytest.raises(RunError, match=r"cannot be created: Read-only file system"):
        folder.create(disk / "x.kscope")
    with pytest.raises(RunError, match=r"cannot be created: /dev/null is not a folder"):
        folder.create(Path(os.devnull) / "x.kscope")


def test_a_crashed_run_reads_from_a_sealed_disk(tmp_path: Path) -> None:
    """What a crash left in the write-ahead log is seen although nothing can be written beside it."""
    writer = write_sample(tmp_path / "live", close=False)
    with mounted(tmp_path / "sealed", "size=8m") as disk:
        shutil.copytree(tmp_path / "live", disk / "x.kscope", ignore=shutil.ignore_patterns("*-shm"))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert len(kernelscope.load(disk / "x.kscope")) == 40
    writer.close()


def test_two_writers_on_one_name(tmp_path: Path) -> None:
    folder.create(tmp_path / "x.kscope")
    with pytest.raises(RunError, match="already exists"):
        folder.create(tmp_path / "x.kscope")
    claimed = [folder.claim_part(tmp_path / "y.kscope", None, pid) for pid in (1, 2, 2)]
    assert [part.name for part in claimed] == ["y.kscope", "child-2", "child-2-2"]
    assert folder.claim_part(tmp_path / "y.kscope", 3, 9).name == "rank-3"


def test_numbering_finds_a_free_name(tmp_path: Path) -> None:
    made = [folder.create_next(tmp_path, "my script!").name for _ in range(3)]
    assert made == ["my-script-1.kscope", "my-script-2.kscope", "my-script-3.kscope"]


def test_a_damaged_tensor(tmp_path: Path) -> None:
    file = tmp_path / "0123.safetensors"
    with pytest.raises(RunError, match="was deleted to stay within"):
        read_tensor(file)
    for content in (b"", b"\xff" * 100, b'\x08\0\0\0\0\0\0\0{"a": 1}', (1 << 60).to_bytes(8, "little")):
        file.write_bytes(content)
        with pytest.raises(RunError, match="is damaged"):
            read_tensor(file)


def test_without_a_driver_the_streams_tell_nothing(tmp_path: Path) -> None:
    """A site on a GPU where there is none: said in a finding, and the calls are there."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a driver; tests/gpu has its tests")
    writer = Writer(tmp_path, info())
    writer.watch_streams(lambda device: 7)
    at = dataclasses.replace(site(1, args=ARGS[:3]), device="cuda:0")
    for _ in range(3):
        writer.note(compact_call(writer, at, -1))()
    call = full_call(next(writer.flight), at)
    writer.enter(call)
    writer.launched(call.index, 7)
    writer.leave(call)
    writer.close()
    run = kernelscope.load(tmp_path)
    assert len(run) == 4
    assert [finding.kind for finding in run.findings] == ["no-stream-markers"]
    assert not any(cell.is_executing or cell.stream for cell in run.flight.cells)


def test_a_fault_on_a_gpu_as_the_markers_tell_it(tmp_path: Path) -> None:
    """The host was far ahead; stream 1 had completed up to call 4, stream 2 all it was given."""
    writer, at = Writer(tmp_path, info()), site(1, args=ARGS[:3])
    for number in range(12):
        end = writer.note(compact_call(writer, at, -1))
        writer.flight.on_stream(number, 1 if number < 10 else 2)
        end()
    writer.flight.completed([(0, 5), (0x7F00, 12)])
    writer.set_metadata("exception", "AcceleratorError: CUDA error: illegal memory access\nmore")
    writer.close()
    crash = crash_of(tmp_path, folder.Invocation(("python",), "/", 1, 2, 1))
    assert crash is not None
    assert (crash.completed, [c.index for c in crash.executing], crash.queued) == (4, [5], 4)
    assert crash.text().startswith(
        "the program ended with status 1 (AcceleratorError: CUDA error: illegal memory access)\n"
        "  completed through 4; call 5 was executing; 4 more were queued:\n"
    )


def test_a_disk_that_is_full_from_the_start_does_not_stop_the_program(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as disk:
        (disk / "x.py").write_text("print('it runs')\nraise SystemExit(3)\n")
        (disk / "filler").write_bytes(bytes(48 << 10))
        with suppress(OSError), (disk / "filler").open("ab") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        ran = subprocess.run(
            [sys.executable, "-m", "kernelscope", "run", "x.py"],
            cwd=disk, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(Path(kernelscope.__file__).parents[2])},
        )  # fmt: skip
    assert ran.stdout == "it runs\n"
    assert ran.returncode == 3
    assert "No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr
