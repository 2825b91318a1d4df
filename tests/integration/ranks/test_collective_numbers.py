"""Calls of collectives have their group, their number in it and their peers, however they are made."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.ranks.collective_order import numbered
from kernelscope.analysis.ranks.rank import Rank
from kernelscope.cli import main
from kernelscope.model.collectives import is_between_two
from kernelscope.store.ranks.rank_parts import load_rank

PROGRAM = Path(__file__).parent / "collective_program.py"
DOCS = Path(__file__).parents[3] / "docs" / "ranks.md"

# By way: the calls of rank 0 that communicate, with group, number and peers.
EXPECTED: dict[str, list[tuple[str, str, int | None, tuple[int, ...]]]] = {
    "in-place": [
        ("c10d.allreduce_", "0", 0, (1, 2)),
        ("c10d.allgather_", "0", 1, (1, 2)),
        ("c10d._allgather_base_", "0", 2, (1, 2)),
        ("c10d._reduce_scatter_base_", "0", 3, (1, 2)),
        ("c10d.broadcast_", "0", 4, (1, 2)),
    ],
    "async": [("c10d.allreduce_", "0", 0, (1, 2)), ("c10d.allreduce_", "0", 1, (1, 2))],
    "coalesced": [("c10d.allreduce_coalesced_", "0", 0, (1, 2)), ("c10d.barrier", "0", 1, (1, 2))],
    "part": [
        ("c10d.allreduce_", "0", 0, (1, 2)),
        ("c10d.allreduce_", "1", 0, (2,)),
        ("c10d.allreduce_", "1", 1, (2,)),
        ("c10d.allreduce_", "0", 1, (1, 2)),
    ],
    "between-two": [
        ("c10d.barrier", "0", 0, (1, 2)),
        ("c10d.send", "0", None, (1,)),
        ("c10d.recv_", "0", None, (2,)),
    ],
    "functional": [
        ("_c10d_functional.all_reduce", "0", 0, (1, 2)),
        ("_c10d_functional.all_gather_into_tensor", "0", 1, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 0, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 1, (1, 2)),
        ("_c10d_functional.all_reduce_coalesced", "0", 2, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 2, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 2, (1, 2)),
    ],
    "compiled": [
        ("_c10d_functional.all_reduce_", "0", 0, (1, 2)),
        ("_c10d_functional.all_gather_into_tensor", "0", 1, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 0, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 1, (1, 2)),
        ("_c10d_functional.all_reduce_coalesced_", "0", 2, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 2, (1, 2)),
        ("_c10d_functional.wait_tensor", "0", 2, (1, 2)),
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    for done in warm_python.run_together(*[[PROGRAM, str(rank), folder] for rank in range(3)]):
        assert done.returncode == 0, done.stderr
    return folder


def told(run: kernelscope.Run) -> list[tuple[Any, ...]]:
    found = []
    for call in run:
        if (one := call.collective) is not None:
            name = call.kernel_name.removesuffix(".default")
            found.append((name, one.group, one.operation, one.peers))
    return found


@pytest.mark.parametrize("way", EXPECTED)
def test_each_has_its_group_number_and_peers(folder: Path, way: str) -> None:
    run = load_rank(folder / f"{way}.kscope", 0)
    # Newer versions of torch wait for the tensors of a coalesced collective together, in compiled code.
    merged = [(name.replace("wait_tensors", "wait_tensor"), *rest) for name, *rest in told(run)]
    assert [each for each, _ in groupby(merged)] == [each for each, _ in groupby(EXPECTED[way])]
    assert all(call.collective is None for call in run if "c10d" not in call.kernel_name)
    assert all(call.collective is not None for call in run if "c10d" in call.kernel_name)
    assert all(call.origin.file == str(PROGRAM) for call in run if call.collective is not None)


@pytest.mark.parametrize("way", EXPECTED)
def test_numbers_are_those_that_ranks_meet_at(folder: Path, way: str) -> None:
    for number in range(3):
        rank = Rank(load_rank(folder / f"{way}.kscope", number))
        begun = [
            (call.index, one.group, one.operation)
            for call in rank.run
            if call.site.collective and not is_between_two(call.kernel_name)
            if (one := call.collective) is not None
        ]
        assert begun == [(rank.at(position).index, key[0], key[2]) for position, key in numbered(rank)]
    result = kernelscope.ranks(folder / f"{way}.kscope")
    assert not result, str(result)


def test_messages_between_two_name_each_other(folder: Path) -> None:
    one, two = (told(load_rank(folder / "between-two.kscope", rank)) for rank in (1, 2))
    assert [each for each in one if each[2] is None] == [
        ("c10d.send", "0", None, (2,)),
        ("c10d.recv_", "0", None, (2,)),
        ("c10d.send", "0", None, (2,)),
        ("c10d.recv_", "0", None, (0,)),
    ]
    assert [each[3] for each in two if each[2] is None] == [(1,), (1,), (0,), (1,)]


def test_the_command_shows_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder / "part.kscope"
    index = [c.index for c in load_rank(run, 2) if c.collective and c.collective.group == "1"][1]
    assert main(["show", str(run), "--rank", "2", "--call", str(index)]) == 0
    assert "collective 1 of group 1 with rank 0" in capsys.readouterr().out
    assert main(["show", str(run), "--rank", "2", "--call", str(index), "--json"]) == 0
    (call,) = json.loads(capsys.readouterr().out)["calls"]
    assert call["collective"] == {"group": "1", "operation": 1, "ranks": [0, 2], "peers": [0]}


def test_the_table_of_the_docs_has_these_ways() -> None:
    text = DOCS.read_text(encoding="utf-8").partition("<!-- collectives: begin -->")[2]
    rows = text.partition("<!-- collectives: end -->")[0].strip().splitlines()[2:]
    assert [row.split("|")[1].strip().strip("`") for row in rows] == list(EXPECTED)
