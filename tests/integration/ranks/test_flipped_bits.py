"""One bit flipped in one kernel's output on one rank: its rank, step and kernel are named."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.docs_blocks import all_blocks
from tests.support.json_schemas import wrong_in
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.ranks.compare import ranks_by_step
from kernelscope.cli import main
from kernelscope.export.rank_dataset import export_ranks

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parent / "trials.py"


def launched(warm_python: WarmPython, folder: Path, size: int, trials: int) -> list[list[dict[str, Any]]]:
    """What each rank tells of its trials."""
    words = [[PROGRAM, str(r), str(size), folder, str(trials)] for r in range(size)]
    for done in warm_python.run_together(*words):
        assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"told-{r}.json").read_text()) for r in range(size)]


def missed(folder: Path, told: list[list[dict[str, Any]]]) -> list[str]:
    """The trials whose flip was not named, with what was found instead."""
    found = []
    for rank, trials in enumerate(told):
        for trial in trials:
            if trial.get("victim") != rank:
                continue
            first = kernelscope.ranks(folder / trial["trial"]).first
            named = first and (first.suspects, first.kernel_name, first.step)
            if named != ((rank,), trial.get("kernel"), trial.get("step")):
                found.append(f"{trial}: {first}")
    return found


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython
) -> tuple[Path, list[list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("flips")
    return folder, launched(warm_python, folder, 2, 5)


def test_a_flipped_bit_is_named_with_its_rank_step_and_kernel(two: tuple[Path, Any]) -> None:
    folder, told = two
    assert sum("trial" in trial for trial in told[0]) == 10
    assert missed(folder, told) == []


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_a_clean_run_gives_no_alarm(two: tuple[Path, Any], how: str) -> None:
    result = kernelscope.ranks(two[0] / f"clean-{how}")
    assert not result, str(result)
    assert result.checked["collectives"] > 3
    assert result.checked["same_inputs"] > 20
    assert result.checked["rechecked"] > 100
    assert not result.notes


def test_replicas_are_held_against_each_other_by_hashes_alone(two: tuple[Path, Any]) -> None:
    """Two ranks cannot outvote each other: both are named, with the kernel and the step."""
    first = kernelscope.ranks(two[0] / "inside").first
    assert first is not None
    assert (first.kind, first.kernel_name, first.step) == ("computed-differently", "aten.addcdiv_.default", 1)
    assert sorted(first.suspects) == [0, 1]
    assert first.argument == "self"
    assert "from the same inputs" in first.reason


def test_memory_that_changed_after_a_kernel_is_named_with_its_writer(two: tuple[Path, Any]) -> None:
    first = kernelscope.ranks(two[0] / "later").first
    assert first is not None
    assert (first.kind, first.kernel_name, first.step) == ("changed-in-memory", "aten.addcdiv_.default", 1)
    assert first.suspects == (1,)
    assert "no recorded call wrote to it in between" in first.reason


def test_a_collective_that_gave_ranks_different_values_puts_them_on_two_sides(two: tuple[Path, Any]) -> None:
    result, table = ranks_by_step(two[0] / "given")
    assert result.first is not None
    assert (result.first.kind, result.first.step) == ("collective-differs", 1)
    assert result.first.kernel_name == "c10d.allreduce_.default"
    assert (table.steps, table.ranks) == ((0, 1, 2), (0, 1))
    assert table.sides == ((0, 0, 0), (0, 1, 0))
    assert table.deviations == ((0, 1, 0), (0, 1, 0))
    assert [sum(row) for row in table.calls] == [rank.calls for rank in result.ranks]
    clean = ranks_by_step(two[0] / "clean-fsdp")[1]
    assert not any(map(any, (*clean.sides, *clean.deviations)))


def test_recording_adds_no_collective(two: tuple[Path, Any]) -> None:
    for rank in two[1]:
        clean = [trial for trial in rank if "clean" in trial]
        assert [trial["alone"] for trial in clean] == [trial["recorded"] for trial in clean]
        assert all(trial["alone"] > 3 for trial in clean)


def test_tables_give_the_same_answer(two: tuple[Path, Any], tmp_path: Path) -> None:
    """A clean run, flips that only --recheck sees, and one of each kind of deviation."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    kinds = set()
    for name in ("clean-fsdp", "ddp-0", "fsdp-1", "inside", "later", "given"):
        assert export_ranks(two[0] / name, tmp_path / name) > 500
        found = kernelscope.ranks(tmp_path / name)
        assert found.to_json() == kernelscope.ranks(two[0] / name).to_json()
        kinds.add(found.first and found.first.kind)
    assert len(kinds) == 5


def test_tables_on_the_command_line(two: tuple[Path, Any], tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    run, tables = str(two[0] / "inside"), str(tmp_path / "tables")
    assert main(["export", run, "--parquet", "--ranks", "all", "-o", tables]) == 0
    assert f"compare the ranks: kernelscope ranks {tables}" in capsys.readouterr().out
    [file] = (tmp_path / "tables" / "hashes" / "rank=1").rglob("*.parquet")
    assert file.parent.name == "steps=0-2"
    assert main(["ranks", tables]) == 1
    from_tables = capsys.readouterr().out
    assert "aten.addcdiv_.default, argument self" in from_tables
    assert main(["ranks", run, "--engine", "duckdb"]) == 1
    assert capsys.readouterr().out == from_tables
    assert main(["ranks", tables, "--ranks", "0"]) == 2
    assert "not two ranks to compare" in capsys.readouterr().err
    assert main(["ranks", tables, "--ranks", "0,9"]) == 2
    assert "has no rank 9; it has 0, 1" in capsys.readouterr().err
    assert main(["ranks", tables, "--engine", "numpy"]) == 2
    assert "--engine numpy cannot read" in capsys.readouterr().err
    file.write_bytes(b"not a table")
    assert main(["ranks", tables]) == 2
    assert "DuckDB cannot read the tables" in capsys.readouterr().err


def test_ray_gives_the_same_answer(two: tuple[Path, Any], tmp_path: Path, capsys: Any) -> None:
    """In a process of its own: Ray leaves threads behind."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'kernelscope[ray]'")
    export_ranks(two[0] / "inside", tmp_path / "tables")
    words = [sys.executable, "-m", "kernelscope", "ranks", str(tmp_path / "tables"), "--json"]
    done = subprocess.run([*words, "--engine", "ray"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == kernelscope.ranks(two[0] / "inside").to_json()


def test_what_tables_need(two: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    run = str(two[0] / "inside")
    monkeypatch.setitem(sys.modules, "duckdb", None)  # what Python does with a module that is not there
    assert main(["ranks", run, "--engine", "duckdb"]) == 2
    assert "pip install 'kernelscope[duckdb]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["ranks", run, "--engine", "ray"]) == 2
    assert "pip install 'kernelscope[ray]'" in capsys.readouterr().err
    assert main(["export", run, "--json", "--ranks", "all"]) == 2
    assert "--ranks needs --parquet" in capsys.readouterr().err
    assert main(["export", run, "--parquet", "--ranks", "all", "--step", "1"]) == 2
    assert "leave out --kernel, --step" in capsys.readouterr().err


def test_a_query_over_ranks(two: tuple[Path, Any], capsys: Any) -> None:
    run, sql = str(two[0] / "inside"), "SELECT max(step) AS last, count(*) FROM call"
    assert main(["query", run, "--ranks", "all", "--json", sql]) == 0
    form = json.loads(capsys.readouterr().out)
    assert form["columns"] == ["rank", "last", "count(*)"]
    assert [row[:2] for row in form["rows"]] == [[0, 2], [1, 2]]
    assert main(["query", run, "--ranks", "1", "--json", sql]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == form["rows"][1:]
    assert main(["query", run, "--ranks", "7", sql]) == 2
    assert "has no rank 7; it has 0, 1" in capsys.readouterr().err
    assert main(["query", run, "--ranks", "1", "--rank", "1", sql]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_the_command_says_the_same_and_exits_with_1(two: tuple[Path, Any], capsys: Any) -> None:
    folder, told = two
    trial = next(trial for trial in told[1] if trial.get("victim") == 1)
    assert main(["ranks", str(folder / trial["trial"]), "--json"]) == 1
    form = json.loads(capsys.readouterr().out)
    assert wrong_in("ranks", form) == []
    assert form["first"]["rank"] == 1
    assert form["first"]["kernel_name"] == trial["kernel"]
    assert main(["ranks", str(folder / trial["trial"])]) == 1
    text = capsys.readouterr().out
    assert "rank 1 on" in text
    assert trial["kernel"] in text
    assert main(["ranks", str(folder / "clean-ddp"), "--ranks", "0-1"]) == 0
    assert "the ranks agree: 2 of 2 ranks" in capsys.readouterr().out


def test_the_block_of_the_docs(
    two: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    shutil.copytree(two[0] / "later.kscope", tmp_path / "kscope-runs" / "train-1.kscope")
    monkeypatch.chdir(tmp_path)
    [block, _of_shards] = [block for block in all_blocks("ranks.md") if block.language == "python"]
    exec(block.text, {"kernelscope": kernelscope})
    assert "1 1 aten.addcdiv_.default" in capsys.readouterr().out


def test_what_is_missing_is_said(two: tuple[Path, Any], capsys: Any) -> None:
    clean = two[0] / "clean-ddp.kscope"
    assert main(["ranks", str(clean), "--ranks", "0"]) == 2
    assert "not two ranks to compare" in capsys.readouterr().err
    assert main(["ranks", str(clean), "--ranks", "0,9"]) == 2
    assert "has no rank 9; it has 0, 1" in capsys.readouterr().err
    copied = two[0] / "torn.kscope"
    shutil.copytree(clean, copied)
    shutil.copytree(copied / "rank-1", copied / "rank-2")
    with sqlite3.connect(copied / "rank-2" / "run.db") as database:
        changes = {"rank": 2, "world_size": 4, "pid": 1, "parent_pid": 0}
        for key, value in changes.items():
            database.execute("UPDATE info SET value = ? WHERE key = ?", (str(value), key))
        database.execute("DELETE FROM info WHERE key = 'ended_ns'")
    (copied / "rank-0" / "run.db").write_bytes(b"not a database")
    result = kernelscope.ranks(copied)
    notes = "\n".join(result.notes)
    assert "rank-0 could not be read" in notes
    assert "ranks 0, 3 are missing" in notes
    assert "rank 2 did not end normally" in notes
    assert [rank.rank for rank in result.ranks] == [1, 2]


def _tried(*options: str) -> dict[str, Any]:
    """What the benchmark of ranks says at its end; it fails unless everything was as expected."""
    words = [sys.executable, str(ROOT / "benchmarks" / "rank_trials.py"), "--check", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=7000)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.rpartition("STAT ")[2])
    return found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_flipped_bits_are_named() -> None:
    """2, 4 and 8 ranks, DDP and FSDP2, layers and a transformer, eager and compiled."""
    found = _tried("--flips", "100", "--clean-steps", "0")
    assert (found["flips"], found["named"], found["alarms"]) == (100, 100, 0)
    assert found["in_compiled_kernels"] > 20
    assert set(found["by_ranks"]) == {"2", "4", "8"}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_clean_steps_give_no_alarm() -> None:
    found = _tried("--flips", "0", "--clean-steps", "1000")
    assert found["clean_steps"] >= 1000
    assert found["alarms"] == 0
