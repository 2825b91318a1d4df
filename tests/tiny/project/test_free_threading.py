"""A Python without its global interpreter lock: recording refuses, in one sentence, and reading works."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

import kernelscope
from kernelscope.cli import main
from kernelscope.config import autorecord_from_environment
from kernelscope.doctor import checks
from kernelscope.startup import autorecord
from kernelscope.startup.script_values import start_by_environment

WHAT_TO_DO = "start it with PYTHON_GIL=1 or -X gil=1, or use the standard build of Python"


@pytest.fixture(autouse=True)
def no_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a free-threaded build answers; others have no such function, or one that says yes."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)


def test_recording_refuses_and_leaves_nothing(tmp_path: Path) -> None:
    for path in (None, tmp_path / "run"):
        with pytest.raises(kernelscope.RunError, match=WHAT_TO_DO), kernelscope.record(path=path):
            raise AssertionError("it records")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("open_it", [kernelscope.shadow, kernelscope.DebugMode, kernelscope.values.observe])
def test_so_does_all_that_listens(open_it: type) -> None:
    with pytest.raises(kernelscope.RunError, match=WHAT_TO_DO), open_it():
        raise AssertionError("it listens")


def test_a_program_that_shall_be_recorded_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = autorecord_from_environment({"KERNELSCOPE_RUN": str(tmp_path / "a.kscope")})
    assert wanted is not None
    with pytest.raises(SystemExit) as ended:
        autorecord.open_recording(wanted)
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kernelscope: cannot record: this Python runs without")
    assert line.endswith(WHAT_TO_DO)
    assert not list(tmp_path.iterdir())


def test_a_program_that_prints_values_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER", "2")
    start_by_environment()
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert said.endswith(f"{WHAT_TO_DO}\n")


def test_runs_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sample(tmp_path / "a.kscope")
    assert len(kernelscope.load(tmp_path / "a.kscope")) == 40
    assert main(["show", str(tmp_path / "a.kscope")]) == 0
    assert "cpp_fused_relu_0" in capsys.readouterr().out


def test_doctor_says_so() -> None:
    python = next(iter(checks.versions()))
    assert python.health == "bad"
    assert python.found.endswith("without its global interpreter lock")
    assert python.advice == f"to record, {WHAT_TO_DO}"


def test_with_it_doctor_is_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert next(iter(checks.versions())).health == "ok"
