"""One run of several ranks: what each part knows, however the ranks were started."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import kernelscope
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.report.content.ranks import ranks_of
from kernelscope.startup.recorded_child import STARTUP
from kernelscope.store.ranks.rank_parts import load_rank, parse_ranks, rank_parts

SPAWNED = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    pair = dist.new_group([0, 1], group_desc="pair")
    alone = [dist.new_group([0]), dist.new_group([1])][rank]
    x = torch.full((4,), 1.0 + rank)
    dist.all_reduce(x)
    dist.all_reduce(x, group=pair)
    dist.all_reduce(x, group=alone)
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, x)
    out + 1
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1],), nprocs=2)
"""

LAUNCHED = """
import sys
import torch, torch.distributed as dist
import kernelscope
from kernelscope.cli import main
dist.init_process_group("gloo")
with kernelscope.record(path=sys.argv[1], values="hash", ops="all") as run:
    x = torch.full((4,), 1.0 + dist.get_rank())
    dist.all_reduce(x)
try:
    with kernelscope.record(path=sys.argv[1], values="hash"):
        pass
except kernelscope.RunError as error:
    assert "already exists" in str(error)
else:
    raise SystemExit("a second recording wrote into the run")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def spawned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spawned")
    (folder / "train.py").write_text(SPAWNED)
    words = [
        "run",
        "--values",
        "hash",
        "--ops",
        "all",
        "--no-stages",
        "-o",
        "both",
        "train.py",
        str(folder / "store"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder / "both.kscope"


def test_ranks_that_multiprocessing_started_are_found_by_their_number(spawned: Path) -> None:
    found = rank_parts(spawned)
    assert list(found.runs) == [0, 1]
    assert found.world_size == 2
    assert not found.missing
    for rank, run in found.runs.items():
        assert (run.info.rank, run.info.local_rank, run.info.world_size) == (rank, rank, 2)
        assert run.info.host
        assert load_rank(spawned, rank).info.uuid == run.info.uuid
    with pytest.raises(RunError, match="has no rank 5; it has 0, 1"):
        load_rank(spawned, 5)


def test_each_collective_knows_its_group_and_each_group_its_ranks(spawned: Path) -> None:
    for rank, run in rank_parts(spawned).runs.items():
        told = [json.loads(mark.text) for mark in run.marks if mark.kind == "process-group"]
        groups = {group["name"]: group for group in told}
        calls = [call for call in run.calls if call.site.collective]
        reduced = [groups[call.site.collective]["ranks"] for call in calls if "allreduce" in call.kernel_name]
        assert reduced == [[0, 1], [0, 1], [rank]]
        assert groups[calls[1].site.collective]["description"] == "pair"
        assert {group["backend"] for group in groups.values()} == {"gloo"}
        assert "of 2 ranks" in str(calls[0])


def test_a_collective_that_never_says_it_is_over_has_ended_when_its_result_is_used(spawned: Path) -> None:
    for run in rank_parts(spawned).runs.values():
        [scattered] = [call for call in run.calls if "reduce_scatter" in call.kernel_name]
        [added] = [call for call in run.calls if call.kernel_name.startswith("aten.add.")]
        assert not scattered.error
        assert scattered.post_hashes[0] == added.pre_hashes[0]


def test_ranks_of_one_launch_share_the_folder_of_record(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAUNCHED)
    environ = {name: value for name, value in os.environ.items() if name != "MASTER_PORT"}
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "both"]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=tmp_path,
        env=environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    runs = rank_parts(tmp_path / "both").runs
    assert [run.path.name for run in runs.values()] == ["rank-0", "rank-1"]
    one, other = ([c for c in run.calls if c.site.collective] for run in runs.values())
    assert one[0].post_hashes == other[0].post_hashes
    assert one[0].pre_hashes != other[0].pre_hashes


ALONE = """
import os, sys
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


def test_rank_0_sums_up_where_no_command_of_ours_started_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE)
    search = os.pathsep.join(filter(None, [str(STARTUP), os.environ.get("PYTHONPATH", "")]))
    wanted = {"KERNELSCOPE_RUN": "both", "KERNELSCOPE_OPTIONS": "--values hash --ops all --no-stages"}
    told = os.environ | wanted | {"PYTHONPATH": search, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py", str(tmp_path / "store")], cwd=tmp_path, stderr=subprocess.PIPE,
            text=True, env=told | {"RANK": str(rank)},
        )
        for rank in (0, 1)
    ]  # fmt: skip
    first, second = (rank.communicate(timeout=200)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0], first + second
    assert re.search(r"recorded \d+ calls of \d+ kernels? by 2 of 2 ranks", first)
    assert first.rstrip().endswith(f"next: kernelscope ranks {tmp_path / 'both.kscope'}")
    assert "next:" not in second


BY_HAND = """
import sys
import torch, torch.distributed as dist
import kernelscope
method, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
with kernelscope.record(path="both", values="hash", ops="all"):
    dist.all_reduce(torch.full((4,), 1.0 + rank))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("scheme", ["file", "tcp"])
def test_ranks_that_were_started_by_hand_share_the_folder_too(tmp_path: Path, scheme: str) -> None:
    """Each has a parent of its own, and no variable of a launcher."""
    (tmp_path / "train.py").write_text(BY_HAND)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    method = f"file://{tmp_path / 'store'}" if scheme == "file" else f"tcp://127.0.0.1:{port}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    words = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", words, sys.executable, "train.py", method, str(rank)],
            cwd=tmp_path,
            env=environ,
        )
        for rank in (0, 1)
    ]
    assert [process.wait(300) for process in running] == [0, 0]
    assert list(rank_parts(tmp_path / "both").runs) == [0, 1]
    assert kernelscope.ranks(tmp_path / "both").checked["collectives"] == 1


def test_a_run_of_one_process_has_no_ranks(tmp_path: Path) -> None:
    import torch

    with kernelscope.record(path=tmp_path / "one", ops="all"):
        torch.ones(2).sin()
    with pytest.raises(RunError, match="has no ranks: it was recorded by one process"):
        rank_parts(tmp_path / "one")


def test_lists_of_ranks() -> None:
    assert parse_ranks("0-3,7") == [0, 1, 2, 3, 7]
    assert parse_ranks("2") == [2]
    for wrong in ("", "a", "3-1", "1-", "-1", "0-99999999999"):
        with pytest.raises(ValueError, match="ranks"):
            parse_ranks(wrong)


def test_two_ranks_of_one_run_are_compared_and_queried(
    spawned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(spawned), "--ranks", "0,1"]) == 1
    assert "aten.full.default" in capsys.readouterr().out, "each rank filled its tensor with another number"
    assert main(["diff", str(spawned), "--ranks", "0"]) == 2
    assert "two ranks of one run" in capsys.readouterr().err
    assert main(["query", "--rank", "1", str(spawned), "SELECT count(*) FROM call"]) == 0
    assert main(["show", str(spawned), "--rank", "1"]) == 0
    assert "rank 1 of 2" in capsys.readouterr().out


def test_show_and_stages_take_several_ranks(spawned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(spawned), "--ranks", "0-1", "--limit", "1"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("==")] == [
        "== rank 0 of both ==",
        "== rank 1 of both ==",
    ]
    assert "rank 0 of 2" in text
    assert "rank 1 of 2" in text
    assert main(["show", str(spawned), "--ranks", "all", "--limit", "1", "--json"]) == 0
    forms = json.loads(capsys.readouterr().out)["ranks"]
    assert {rank: form["run"]["rank"] for rank, form in forms.items()} == {"0": 0, "1": 1}
    assert main(["stages", str(spawned), "--ranks", "1", "--settings", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["ranks"]) == ["1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "--ranks", "0,7"], "has no rank 7; it has 0, 1"),
        (["show", "--ranks", "0", "--rank", "1"], "exclude each other"),
        (["show", "--ranks", "0-1", "--crash"], "cannot be combined with --crash"),
        (["stages", "--ranks", "0-1", "--export", "out"], "cannot be combined with --export"),
        (["diff", "--ranks", "all"], "two ranks of one run"),
    ],
)
def test_ranks_that_cannot_be_shown_are_refused(
    words: list[str], says: str, spawned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([words[0], str(spawned), *words[1:]]) == 2
    assert says in capsys.readouterr().err


def test_a_page_has_the_ranks_that_were_chosen(spawned: Path, tmp_path: Path) -> None:
    told = ranks_of(spawned)
    assert told is not None
    assert told.about()["table"]["ranks"] == [0, 1]
    chosen = ranks_of(spawned, [0])
    assert chosen is not None
    assert "not two ranks to compare" in chosen.in_a_file()["error"]
    with kernelscope.record(path=tmp_path / "one", ops="all"):
        pass
    assert ranks_of(tmp_path / "one.kscope") is None


@pytest.mark.parametrize("began", ["meanwhile", "afterwards"])
def test_a_helper_of_a_rank_is_not_the_rank_started_again(spawned: Path, tmp_path: Path, began: str) -> None:
    """Under torchrun, a process that a rank starts has the rank's variables, and a part of its own."""
    run = tmp_path / "both.kscope"
    ranks = rank_parts(spawned).runs
    for rank, each in ranks.items():
        shutil.copytree(each.path, run / f"rank-{rank}")
    shutil.copytree(ranks[0].path, run / "rank-0-2")
    first = kernelscope.load(run, part="rank-0")
    at = (first.info.realtime_ns + 1) if began == "meanwhile" else first.metadata["ended_ns"] + 1
    with closing(sqlite3.connect(run / "rank-0-2" / "run.db")) as database:
        for key, value in (("realtime_ns", at), ("pid", 1), ("parent_pid", 2)):
            database.execute("update info set value = ? where key = ?", (json.dumps(value), key))
        database.commit()
    found = rank_parts(run)
    assert found.runs[0].path.name == ("rank-0" if began == "meanwhile" else "rank-0-2")
    assert bool(found.notes) == (began == "afterwards")
