"""What ranks send and what they draw: which of two that disagree is wrong, and when generators part."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.ranks.chosen import chosen_ranks
from kernelscope.analysis.ranks.collective_order import CollectiveOrder
from kernelscope.analysis.ranks.deviation import RanksResult
from kernelscope.analysis.ranks.sent.in_memory import SentValues
from kernelscope.analysis.ranks.sent.transfers import source_of
from kernelscope.export.rank_dataset import export_ranks

PROGRAM = Path(__file__).parent / "sending_program.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    folder = tmp_path_factory.mktemp("sent")
    for done in warm_python.run_together(*[[PROGRAM, str(rank), folder] for rank in (0, 1)]):
        assert done.returncode == 0, done.stderr
    return folder


def answer(folder: Path, way: str, tables: Path) -> RanksResult:
    """The same in memory and from tables."""
    found = kernelscope.ranks(folder / way)
    export_ranks(folder / f"{way}.kscope", tables)
    assert kernelscope.ranks(tables).to_json() == found.to_json()
    return found


def test_a_clean_run_gives_no_alarm(folder: Path, tmp_path: Path) -> None:
    result = answer(folder, "clean", tmp_path / "tables")
    assert not result, str(result)
    # In each of two rounds: two broadcasts, and an all-gather of two tensors, on two ranks. The all-gathers
    # into a single tensor, and into memory with gaps, cannot be compared.
    assert result.checked["sent"] == 2 * (2 + 2 + 4)
    assert "16 results of them against what was sent" in str(result)


@pytest.mark.parametrize(
    ("way", "rank", "kernel", "argument"),
    [
        ("gathered", 1, "c10d.allgather_.default", "output_tensors[0][0]"),
        ("broadcast", 0, "c10d.broadcast_.default", "tensors[0]"),
    ],
)
def test_a_rank_that_got_other_values_is_named(
    folder: Path, tmp_path: Path, way: str, rank: int, kernel: str, argument: str
) -> None:
    first = answer(folder, way, tmp_path / "tables").first
    assert first is not None
    assert (first.kind, first.rank, first.suspects) == ("collective-differs", rank, (rank,))
    assert (first.kernel_name, first.argument) == (kernel, argument)
    assert f"it did not get the values of what rank {1 - rank} put into collective" in first.reason


def test_a_rank_that_sent_other_values_than_it_held_is_named(folder: Path, tmp_path: Path) -> None:
    """Both ranks got the same, so no comparison of results shows it; that memory changed comes first."""
    assert answer(folder, "given", tmp_path / "tables").first is not None
    ranks = chosen_ranks(folder / "given", None).ranks
    first = SentValues(ranks, CollectiveOrder(ranks).meetings).deviations[0]
    assert (first.kind, first.suspects, first.argument) == ("collective-differs", (1,), "input_tensors[0]")
    assert "no rank got the values of what rank 1 put into collective" in first.reason


def test_generators_that_part_are_a_note(folder: Path, tmp_path: Path) -> None:
    alike, parted = (answer(folder, way, tmp_path / way) for way in ("alike", "parted"))
    assert not alike.notes
    [note] = [note for note in parted.notes if "generators" in note]
    assert "(cpu) of ranks 0, 1 had the same state after step 0, and no longer after step 1" in note


def test_what_must_equal_what() -> None:
    assert source_of("c10d.allgather_.default", "output_tensors[0][3]", None) == (3, "input_tensors[0]")
    assert source_of("c10d.allgather_coalesced_.default", "output_lists[3][1]", None) == (3, "input_list[1]")
    assert source_of("c10d.broadcast_.default", "tensors[0]", 2) == (2, "tensors[0]")
    assert source_of("_c10d_functional.broadcast.default", "result", 2) == (2, "input")
    assert source_of("c10d._allgather_base_.default", "output_tensor", None) is None
