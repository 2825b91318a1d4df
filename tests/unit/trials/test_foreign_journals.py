"""A search of another person is not continued: its folder holds what would be executed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelscope.cli import main
from kernelscope.trials.journal import BISECT, FILE, REDUCE, Journal, refuse_foreign

SWITCHES = {"switches": [{"axis": "config", "name": "torch._inductor.config.cpp.cxx", "value": ["./evil"]}]}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    made = tmp_path / "kscope-runs" / "train-bisect-1"
    made.mkdir(parents=True)
    Journal(made / FILE, {**BISECT, "command": ["train.py"]})
    return made / FILE


def test_an_own_search_is_continued(begun: Path) -> None:
    refuse_foreign(begun)
    begun.write_text(begun.read_text() + json.dumps({"switches": []}) + "\n")
    refuse_foreign(begun)


def unsigned(path: Path) -> None:
    path.write_text(json.dumps({**BISECT, "command": ["train.py"]}) + "\n")


def forged(path: Path) -> None:
    path.write_text(json.dumps({**BISECT, "command": ["train.py"], "signature": "0" * 64}) + "\n")


def of_another_search(path: Path) -> None:
    signature = json.loads(path.read_text())["signature"]
    path.write_text(json.dumps({**BISECT, "command": ["other.py"], "signature": signature}) + "\n")


def changed_copy(path: Path) -> None:
    """Sent, changed, and sent back to the same place."""
    shutil.copytree(path.parent, path.parent.with_name("copy"))
    shutil.rmtree(path.parent)
    path.parent.with_name("copy").rename(path.parent)
    path.write_text(path.read_text() + json.dumps(SWITCHES) + "\n")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize("change", [unsigned, forged, of_another_search, changed_copy, pipe, link, deep])
@pytest.mark.parametrize("named", [True, False])
def test_a_foreign_search_is_refused(
    begun: Path, change: Callable[[Path], None], named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    change(begun)
    words = ["-o", str(begun.parent)] if named else []
    assert main(["bisect", "--resume", *words, "train.py"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kernelscope: ")
    assert "Traceback" not in said


def test_a_foreign_reduction_is_refused(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun.write_text(json.dumps(REDUCE) + "\n")
    (begun.parent / "reduced.py").write_text("kept")
    assert main(["reduce", "--resume", "-o", str(begun.parent), "train.py"]) == 2
    assert "was not made by you" in " ".join(capsys.readouterr().err.split())
    assert (begun.parent / "reduced.py").read_text() == "kept"
