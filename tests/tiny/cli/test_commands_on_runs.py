"""Commands on hand-made runs: what they print, their JSON, and what they say to bad input. No torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

import kernelscope
from kernelscope.cli import main
from kernelscope.cli.parsing import parsed
from kernelscope.store import folder

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs: the older closed, the newer as a crash leaves it."""
    monkeypatch.chdir(tmp_path)
    write_sample(tmp_path / folder.HOME / "old-1.kscope")
    os.utime(tmp_path / folder.HOME / "old-1.kscope", (1, 1))
    writer = write_sample(tmp_path / folder.HOME / "new-1.kscope", close=False, executing=True)
    invocation = folder.Invocation(("python", "train.py"), str(tmp_path), 1, 2, -11)
    folder.write_invocation(tmp_path / folder.HOME / "new-1.kscope", invocation)
    writer.forget()  # as a death does: nobody holds the flight recorder any more
    return tmp_path


def as_json(capsys: Capture, *words: str) -> dict[str, object]:
    assert main([*words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_show_tells_statistics(here: Path, capsys: Capture) -> None:
    assert main(["show", "old-1", "--call", "0"]) == 0
    out = capsys.readouterr().out
    assert "statistics" in out
    assert "nothing finite nan 1" in out
    [call] = as_json(capsys, "show", "old-1", "--call", "0")["calls"]  # type: ignore[misc, attr-defined]
    assert call["args"][1]["stats_after"]["nan"] == 1


def test_show_lists_calls(here: Path, capsys: Capture) -> None:
    assert main(["show", "old-1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "40 calls of 3 kernels in 1 graph  (torch 2.13.0, values=hash)\ngraph 0 0_forward (forward), step 1"
    )
    assert "model.py:12  extern_kernels.mm" in out
    assert "raised RuntimeError: no" in out
    assert "[undeclared-write] call 3 something" in out
    assert main(["show", "old-1", "--kernel", "*mm", "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("extern_kernels.mm") == 2
    assert "… more: --first 7" in out


def test_show_one_call(here: Path, capsys: Capture) -> None:
    assert main(["show", "old-1", "--call", "2", "--source"]) == 0
    out = capsys.readouterr().out
    for expected in (
        "call 2  [cpp] extern_kernels.mm", "/model.py:12 in forward", "num_warps=4", "(1, 2, 3)",
        "in_ptr0 = arg0_1", "uninitialised", "void extern_kernels.mm() {}", "/train.py:3",
    ):  # fmt: skip
        assert expected in out
    assert main(["show", "old-1", "--call", "4000"]) == 2
    assert "has no call 4000; it has 40 calls" in capsys.readouterr().err


def test_inside_of_a_run_that_run_is_meant(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "old-1").mkdir()  # a folder of that name which holds no run does not hide the run
    assert main(["show", "old-1", "--limit", "1", "--graph", "²"]) == 0
    monkeypatch.chdir(here / folder.HOME / "old-1.kscope")
    for words in (["show"], ["show", "."]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("40 calls")


def test_show_json(here: Path, capsys: Capture) -> None:
    shown = as_json(capsys, "show", "old-1", "--limit", "3")
    assert set(shown) == {"run", "calls", "more", "findings"}
    calls = shown["calls"]
    assert isinstance(calls, list)
    assert len(calls) == 3
    assert set(calls[0]) == {
        "index", "kind", "producer", "kernel_name", "grid", "config", "args", "time", "origin", "graph",
        "graph_call", "step", "phase", "device", "stream", "thread", "replay", "parent", "error",
        "provenance", "flight_recorder_only", "collective",
    }  # fmt: skip
    assert calls[0]["origin"] == {"file": "/model.py", "line": 11, "function": "forward"}
    assert calls[2]["args"][0]["before"] == f"{4 * 0x9E3779B97F4A7C15 % (1 << 64):016x}"
    assert calls[0]["args"][2]["value"] == 512


def test_the_newest_run_is_meant(here: Path, capsys: Capture) -> None:
    assert main(["show", "--crash"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("the program was killed by SIGSEGV\n  completed through 39; call 40 was executing:")
    assert "[cpp] cpp_fused_noted_1 grid=(1, 2, 3) at /model.py:13 in forward" in out
    crash = as_json(capsys, "show", "--crash")["crash"]
    assert isinstance(crash, dict)
    assert crash["executing"][0]["kernel_name"] == "cpp_fused_noted_1"
    assert main(["show", "--crash", "old-1"]) == 0
    assert "finished normally" in capsys.readouterr().out


def test_ls(here: Path, capsys: Capture) -> None:
    runs = as_json(capsys, "ls")["runs"]
    assert isinstance(runs, list)
    assert [(Path(r["path"]).name, r["calls"], r["status"], r["closed"]) for r in runs] == [
        ("new-1.kscope", 41, -11, False), ("old-1.kscope", 40, None, True)
    ]  # fmt: skip
    assert main(["ls"]) == 0
    assert "signal 11" in capsys.readouterr().out


def test_times(here: Path, capsys: Capture) -> None:
    assert main(["show", "old-1", "--sort", "time"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["total", "share", "calls", "each", "GB/s", "kind", "line", "kernel"]
    assert "extern_kernels.mm" in lines[2]
    sites = as_json(capsys, "show", "old-1", "--sort", "time")["sites"]
    assert isinstance(sites, list)
    assert sum(s["share"] for s in sites) == pytest.approx(1)
    assert sites[0]["bytes"] == 2 * 8 * 64 * 4


def test_query(here: Path, capsys: Capture) -> None:
    assert main(["query", "old-1", "SELECT kernel, count(*) AS n FROM call GROUP BY 1 ORDER BY 2 DESC"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["cpp_fused_noted_1", "20"]
    assert as_json(capsys, "query", "SELECT 1 AS one") == {"columns": ["one"], "rows": [[1]], "more": False}


@pytest.mark.parametrize("place", range(3))
def test_options_stand_anywhere(here: Path, capsys: Capture, place: int) -> None:
    words = ["old-1", "SELECT 1 AS one"]
    assert main(["query", *words[:place], "--json", *words[place:]]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [[1]]
    assert main(["query", "old-1", "--", "SELECT 1"]) == 0
    both = ["old-1", "new-1"]
    args = parsed(["diff", *both[:place], "--fail-on", "values", *both[place:]])
    assert [args.a, args.b, args.fail_on] == [*both, "values"]


def test_pack_and_unpack(here: Path, capsys: Capture) -> None:
    (here / folder.HOME / "new-1.kscope" / "private.txt").write_text("not of the run")
    packed = as_json(capsys, "pack")
    assert packed["file"] == "new-1.kscope.zip"
    unpacked = as_json(capsys, "unpack", "new-1.kscope.zip", "-o", "again")
    run = kernelscope.load(str(unpacked["run"]))
    assert [c.index for c in run.calls] == list(range(41))
    assert sorted(p.name for p in run.path.iterdir()) == ["command.json", "flight", "run.db"]
    assert main(["pack", "new-1"]) == 2
    assert main(["unpack", "new-1.kscope.zip", "-o", "again"]) == 2
    assert main(["show", "new-1.kscope.zip"]) == 2
    assert "kernelscope unpack" in capsys.readouterr().err


def test_a_packed_file_cannot_escape(here: Path, capsys: Capture) -> None:
    import zipfile

    for name in ("../evil", "/etc/evil", "run.db/../../evil", "tensors/x.py", "startup.pth"):
        with zipfile.ZipFile("evil.zip", "w") as archive:
            archive.writestr("run.db", b"x")
            archive.writestr(name, b"x")
        assert main(["unpack", "evil.zip", "-o", "evil"]) == 2
        assert "not a packed run: it holds" in capsys.readouterr().err
        assert not (here / "evil.kscope").exists()
    (here / "evil.zip").write_bytes(b"PK\3\4 nonsense")
    assert main(["unpack", "evil.zip"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "-"], "a script from standard input (-) is not supported: save it to a file"),
        (["run", "nowhere.py"], "there is no script nowhere.py"),
        (["run", "broken.py"], "broken.py, line 1: invalid syntax"),
        (["run", "-m", "no_such_module"], "there is no module named no_such_module"),
        (["run", "-m", "json.no_such_module"], "there is no module named json.no_such_module"),
        (["run", "-m", "package"], "package is a package without a __main__ module"),
        (["run", "-m", "package.broken"], "broken.py, line 1: invalid syntax"),
        (["run", "sh"], "there is no script sh; for a command: kernelscope run -- sh"),
        (["run", "-o", ".", "fine.py"], ". is not a name for a run"),
        (["run", "-o", "/", "fine.py"], "/ is not a name for a run"),
        (["show", "."], "there is no run in ."),
        (["run", "--", "no-such-command"], "there is no command no-such-command"),
        (["run"], "nothing to run"),
        (["stages", "old-1", "--only", "fx"], "--only needs --sections"),
        (["stages", "old-1", "--indent", "4"], "--indent needs --export DIR"),
        (["run", "-o", "kscope-runs/old-1", "fine.py"], "already exists"),
        (["show", "nothing-here"], "there is no run nothing-here"),
        (["show", "fine.py"], "is a file; a run is a folder"),
        (["show", "old-1", "--part", "rank-7"], "has no part 'rank-7'"),
        (["ls", "nowhere"], "nowhere is not a folder"),
        (["query", "SELEC"], "SQLite rejected the query"),
        (["query", "DROP VIEW call"], "a run is only read: start with SELECT or WITH"),
        (["query", "SELECT 1 FROM cals"], "no such table: cals; the tables are arguments, call, calls,"),
        (["query", "old-1", "--part", "rank-7", "SELECT 1"], "has no part 'rank-7'"),
        (["query", "a", "b", "c"], "put the query in quotes"),
        (["unpack", "nowhere.zip"], "there is no file nowhere.zip"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(here: Path, capsys: Capture, words: list[str], said: str) -> None:
    (here / "broken.py").write_text("x = = 1\n")
    (here / "fine.py").write_text("x = 1\n")
    (here / "package").mkdir()
    (here / "package" / "__init__.py").write_text("raise RuntimeError('imported')")
    (here / "package" / "broken.py").write_text("x = = 1\n")
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("kernelscope: ")
    assert said in err
    assert err.count("\n") == 1


def test_ranks_are_parts(tmp_path: Path, capsys: Capture) -> None:
    for rank in (1, 0):
        write_sample(folder.claim_part(tmp_path / "both.kscope", rank, 1))
    assert main(["show", str(tmp_path / "both.kscope"), "--rank", "1", "--limit", "1"]) == 0
    capsys.readouterr()
    [run] = as_json(capsys, "ls", str(tmp_path))["runs"]  # type: ignore[misc]
    assert (run["parts"], run["calls"]) == (["rank-0", "rank-1"], 80)


@pytest.mark.parametrize("words", [["show", "pipe-1"], ["query", "pipe-1", "SELECT 1"]])
def test_a_run_that_is_not_made_of_files_is_refused_in_the_same_words(
    here: Path, capsys: Capture, words: list[str]
) -> None:
    (here / "kscope-runs" / "pipe-1.kscope").mkdir()
    os.mkfifo(here / "kscope-runs" / "pipe-1.kscope" / "run.db")
    assert main(words) == 2
    assert "run.db is a pipe" in capsys.readouterr().err
    found = {Path(run["path"]).name: run for run in as_json(capsys, "ls")["runs"]}  # type: ignore[attr-defined]
    assert "run.db is a pipe" in found["pipe-1.kscope"]["error"]


def test_one_run_is_not_enough_to_compare(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sample(tmp_path / folder.HOME / "only-1.kscope").close()
    assert main(["diff"]) == 2
    assert "diff needs two runs, and there is only 1 here; record with: " in capsys.readouterr().err
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert main(["diff", "../kscope-runs/only-1.kscope"]) == 2
    assert "diff needs a second run to compare ../kscope-runs/only-1.kscope with" in capsys.readouterr().err
