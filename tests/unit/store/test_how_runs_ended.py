"""What is told of a run that was not closed: it still runs, it was stopped, or a process of it died."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

import kernelscope
from kernelscope.cli import main
from kernelscope.store import folder
from kernelscope.store.flight.crash import crash_in
from kernelscope.store.flight.reader import is_recording

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *words: str | Path) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_a_program_that_still_runs_has_not_crashed(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False, executing=True)
    assert crash_in(path) is None
    assert "still running" in printed(capsys, "show", "--crash", path)
    assert json.loads(printed(capsys, "show", "--crash", path, "--json"))["run"]["running"]
    assert "still being recorded" in printed(capsys, "show", path)
    assert "running" in printed(capsys, "ls", tmp_path)
    writer.forget()  # as a death does
    assert crash_in(path) is not None
    assert "cpp_fused_noted_1" in printed(capsys, "show", "--crash", path)
    assert "not closed" in printed(capsys, "ls", tmp_path)


def test_a_forked_child_does_not_keep_it_running(tmp_path: Path) -> None:
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False)
    ours, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        writer.forget()
        os.write(ours[1], b".")
        os.read(theirs[0], 1)
        os._exit(0)
    os.read(ours[0], 1)
    assert is_recording(path / folder.FLIGHT)
    writer.close()
    was_recording = is_recording(path / folder.FLIGHT)
    os.write(theirs[1], b".")
    os.waitpid(child, 0)
    assert not was_recording


def test_a_recording_that_stopped_says_why(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.kscope"
    writer = write_sample(path, close=False)
    with writer.lock, pytest.warns(RuntimeWarning, match="stopped recording"):
        writer.give_up("the disk is full of ö")
    writer.flight.close()
    assert kernelscope.load(path).stopped == "the disk is full of ö"
    assert crash_in(path) is None
    for words in (["show"], ["show", "--crash"]):
        told = printed(capsys, *words, path)
        assert "the recording stopped before the program did: the disk is full of ö" in told


def test_a_process_that_was_ended_by_another(tmp_path: Path, capsys: Capture) -> None:
    """A pool ends its workers with a signal: the program itself did well."""
    path = tmp_path / "x.kscope"
    write_sample(path)
    write_sample(path / "child-42", close=False).forget()
    folder.write_invocation(path, folder.Invocation(("python", "x.py"), "/", 1, 2, 0))
    told = printed(capsys, "show", "--crash", path).splitlines()[0]
    assert told == (
        "the program started child-42, a process that ended without closing its recording; "
        "it ended with status 0"
    )


@pytest.mark.parametrize(
    ("status", "told"),
    [(-9, "was killed by SIGKILL"), (139, "was killed by SIGSEGV"), (200, "ended with status 200")],
)
def test_how_a_status_is_told(tmp_path: Path, capsys: Capture, status: int, told: str) -> None:
    path = tmp_path / "x.kscope"
    write_sample(path, close=False).forget()
    folder.write_invocation(path, folder.Invocation(("python", "x.py"), "/", 1, 2, status))
    assert printed(capsys, "show", "--crash", path).startswith(f"the program {told}")


def test_the_older_name_of_command_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.kscope"
    write_sample(path)
    folder.write_invocation(path, folder.Invocation(("python", "x.py"), "/", 1, 2, 3))
    (path / "command.json").rename(path / "story.json")
    found = folder.read_invocation(path)
    assert found is not None
    assert found.status == 3
