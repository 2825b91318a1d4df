"""`kernelscope diff` on hand-made runs: words, JSON, exit status, and what it says to bad input. No torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.long_runs import copy_with_a_fault, copy_without_a_call, write_long_run
from tests.support.sample_runs import write_sample

from kernelscope.cli import main
from kernelscope.store import folder

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / folder.HOME
    good = write_long_run(home / "good.kscope", 200)
    copy_with_a_fault(good, home / "fault.kscope", 120)
    copy_without_a_call(good, home / "short.kscope", 60)
    copy_with_a_fault(good, home / "same.kscope", 1000)
    return tmp_path


def test_words(here: Path, capsys: Capture) -> None:
    assert main(["diff", "good", "fault"]) == 1
    out = capsys.readouterr().out
    for expected in (
        "nondeterministic-kernel: first divergence at call 120",
        "[cpp] cpp_fused_relu_20", "at /model.py:20 in f", "out_ptr0 after: #",
        "31 of 79 later calls differ, the last is call 151", "→ 149 cpp_fused_relu_49 through in_ptr",
    ):  # fmt: skip
        assert expected in out
    assert main(["diff", "good", "same"]) == 0
    assert "no divergence: 200 calls" in capsys.readouterr().out
    assert main(["diff", "good", "short"]) == 1
    assert "missing-call: first divergence at call 60" in capsys.readouterr().out
    assert main(["diff", "short", "good"]) == 1
    assert "extra-call: extra call 60" in capsys.readouterr().out


def test_json(here: Path, capsys: Capture) -> None:
    assert main(["diff", "--json", "good", "fault"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert {"index", "kernel_name", "kind", "argument", "verdict", "origin", "max_abs"} <= told[
        "divergence"
    ].keys()
    assert told["divergence"]["index"] == 120
    assert told["divergence"]["origin"] == {"file": "/model.py", "line": 20, "function": "f"}
    assert told["compared"]["pairs"] == 200
    assert main(["diff", "--json", "good", "same"]) == 0
    assert json.loads(capsys.readouterr().out)["divergence"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["good", "good"], "compared with itself"),
        (["good", "nowhere"], "there is no run nowhere"),
        (["good", "fault", "--save"], "was not recorded by `kernelscope run`"),
        (["good", "short", "--save"], "only one of the runs has this call"),
        (["good", "fault", "--part", "rank-7"], "has no part 'rank-7'"),
    ],
)
def test_bad_input(here: Path, capsys: Capture, words: list[str], says: str) -> None:
    assert main(["diff", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kernelscope: ")
    assert says in err
    assert err.count("\n") == 1


def test_the_newest_runs_are_meant(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diff"]) == 2
    assert "diff needs two runs, and there are 0 here" in capsys.readouterr().err
    write_sample(tmp_path / "old.kscope")
    write_sample(tmp_path / "new.kscope")
    assert main(["diff"]) == 2  # the samples have one identity
    assert "compared with itself" in capsys.readouterr().err


def test_determinism_says_what_is_wrong(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, says in (
        (["--runs", "1", "x.py"], "use at least 2"),
        (["--ops", "some", "x.py"], "use all or graph"),
        (["x.py"], "there is no script x.py"),
        ([], "nothing to run"),
        (["--", "true"], "add --fresh"),
    ):
        assert main(["determinism", *words]) == 2
        assert says in capsys.readouterr().err


def test_what_fails_is_chosen(here: Path, capsys: Capture) -> None:
    """good and fault differ in a value, good and short only in a call."""
    statuses = {
        (other, what): main(["diff", "good", other, "--fail-on", what])
        for other in ("fault", "short", "same")
        for what in ("values", "kernels", "nothing")
    }
    out = capsys.readouterr().out
    assert {key for key, status in statuses.items() if status} == {
        ("fault", "values"), ("fault", "kernels"), ("short", "kernels")
    }  # fmt: skip
    assert set(statuses.values()) == {0, 1}
    assert "--fail-on values: no value differs where both runs have a call, so the exit status is 0" in out
    assert main(["diff", "good", "fault", "--fail-on", "nothing", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["values_differ"]
    assert not told["fails"]
