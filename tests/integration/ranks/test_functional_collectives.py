"""Functional collectives, which compiled code uses: what they gave is known at their wait, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.ranks.rank import Rank
from kernelscope.analysis.ranks.waits import Waits
from kernelscope.store.ranks.rank_parts import load_rank

PROGRAM = Path(__file__).parent / "functional_trials.py"
KINDS = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    folder = tmp_path_factory.mktemp("functional")
    for done in warm_python.run_together(*([PROGRAM, str(r), folder] for r in (0, 1))):
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_every_result_is_known_at_its_wait(folder: Path, how: str) -> None:
    gave = []
    for number in (0, 1):
        rank = Rank(load_rank(folder / f"{how}-clean", number))
        waits = Waits(rank)
        names = [rank.at(position).kernel_name for position, _ in rank.collectives]
        assert len(names) == 15
        assert all(kind in name for kind, name in zip(KINDS * 5, names, strict=True))
        assert all(rank.at(position).pre_hashes for position, _ in rank.collectives), "what it read"
        gave.append([tuple(waits.gave(position).values()) for position, _ in rank.collectives])
        assert all(len(values) == 1 for values in gave[-1])
    same = [one == other for one, other in zip(*gave, strict=True)]
    assert same == [True, True, False] * 5, "each rank has its own part of what is scattered"


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_clean_run_gives_no_alarm(folder: Path, how: str) -> None:
    result = kernelscope.ranks(folder / f"{how}-clean")
    assert not result, str(result)
    assert result.checked["collectives"] == 15
    assert not result.notes


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize(("what", "kind"), [("reduced", 0), ("gathered", 1)])
def test_a_collective_that_gave_one_rank_other_values_is_named(
    folder: Path, how: str, what: str, kind: int
) -> None:
    run = folder / f"{how}-{what}"
    first = kernelscope.ranks(run).first
    assert first is not None
    assert first.kind == "collective-differs"
    assert KINDS[kind] in first.kernel_name
    rank = Rank(load_rank(run, first.rank))
    position, _ = rank.collectives[3 + kind]
    assert first.index == rank.at(position).index, "the second of its kind"
    # Outside of graphs there are pieces of what was gathered, which show that rank 0 got what was sent.
    assert sorted(first.suspects) == ([1] if (how, what) == ("eager", "gathered") else [0, 1])
