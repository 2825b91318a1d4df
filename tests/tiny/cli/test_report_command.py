"""`kernelscope report` and `kernelscope view` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

from kernelscope.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sample(tmp_path / "train.kscope")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_writes_one_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 0
    assert capsys.readouterr().out.startswith("train.html: 40 calls of train")
    text = (here / "train.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "cpp_fused_relu_0" in text
    assert sorted(p.name for p in here.iterdir()) == ["train.html", "train.kscope"]


def test_says_what_it_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "train", "-o", "part.html", "--first", "10", "--limit", "5"]) == 0
    assert "of 40 calls; choose with --first and --limit, or use kernelscope view" in capsys.readouterr().out
    assert main(["report", "train", "-o", "part.html", "--limit", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["calls"], told["of"]) == (5, 40)
    assert main(["report", "train", "-o", "one.html", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("one.html: 1 call of train, ")
    assert told["bytes"] == (here / "part.html").stat().st_size


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["report", "nothing"], "there is no run nothing"),
        (["report", "-o", "no/such/folder/x.html"], "cannot write no/such/folder/x.html"),
        (["report", "--diff", "train"], "compared with itself"),
        (["report", "--diff", "gone"], "there is no run gone"),
        (["view", "nothing"], "there is no run nothing"),
        (
            ["view", "--port", "99999", "--no-browser"],
            "cannot use port 99999: the last one is 65535; leave out --port",
        ),
    ],
)
def test_bad_input(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert complaint in capsys.readouterr().err
