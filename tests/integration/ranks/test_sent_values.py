"""What ranks send and what they draw: which of two that disagree is wrong, and when generators part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.ranks.chosen import chosen_ranks
from kernelscope.analysis.ranks.collective_order import CollectiveOrder
from kernelscope.analysis.ranks.deviation import RanksResult
from kernelscope.analysis.ranks.sent.in_memory import SentValues
from kernelscope.analysis.ranks.sent.transfers import source_of
from kernelscope.export.rank_dataset import export_ranks
from kernelscope.recording.ranks.gathered_pieces import GatheredPieces

COALESCED = "_c10d_functional.all_gather_into_tensor_coalesced.default"
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
    # In each of two rounds, on two ranks: two broadcasts, and two tensors in a list, twice in one tensor, in
    # one of a functional all-gather and in two of a coalesced one. Memory with gaps cannot be compared.
    assert result.checked["sent"] == 2 * 2 * (2 + 2 * (1 + 2 + 1 + 2))
    assert "56 results of them against what was sent" in str(result)


@pytest.mark.parametrize(
    ("way", "rank", "kernel", "argument"),
    [
        ("gathered", 1, "c10d.allgather_.default", "output_tensors[0][0]"),
        ("in-one", 1, "c10d._allgather_base_.default", "output_tensor[0]"),
        ("functional", 1, COALESCED, "result[0][0]"),
        ("broadcast", 0, "c10d.broadcast_.default", "tensors[0]"),
    ],
)
def test_a_rank_that_got_other_values_is_named(
    folder: Path, tmp_path: Path, way: str, rank: int, kernel: str, argument: str
) -> None:
    first = answer(folder, way, tmp_path / "tables").first
    assert first is not None
    assert (first.kind, first.rank, first.suspects) == ("collective-differs", rank, (rank,))
    assert (first.kernel_name, first.argument, first.step) == (kernel, argument, 0)
    assert first.origin is not None
    assert first.origin.file == str(PROGRAM)
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
    assert "(cpu) of ranks 0, 1 had the same state after step 0, but different states after step 1" in note


def test_what_must_equal_what() -> None:
    assert source_of("c10d.allgather_.default", "output_tensors[0][3]", None) == (3, "input_tensors[0]")
    assert source_of("c10d.allgather_coalesced_.default", "output_lists[3][1]", None) == (3, "input_list[1]")
    assert source_of("c10d.broadcast_.default", "tensors[0]", 2) == (2, "tensors[0]")
    assert source_of("_c10d_functional.broadcast.default", "result", 2) == (2, "input")
    assert source_of("c10d._allgather_base_.default", "output_tensor", None) is None


def test_pieces_of_one_tensor_are_in_the_listing(folder: Path) -> None:
    run = kernelscope.load(folder / "clean.kscope")
    call = run.select(kernel="c10d._allgather_base_.default")[0]
    assert call.arg_names[-2:] == ("output_tensor[0]", "output_tensor[1]")
    own = call.pre_hashes[call.arg_names.index("input_tensor")]
    assert call.post_hashes[call.arg_names.index("output_tensor[0]")] == own
    assert not run.findings


def test_what_fsdp_gathers_is_compared_with_what_each_rank_held(folder: Path, tmp_path: Path) -> None:
    result = answer(folder, "sharded", tmp_path / "tables")
    assert not result, str(result)
    gathers = kernelscope.load(folder / "sharded.kscope").select(kernel="c10d._allgather_base_.default")
    assert len(gathers) >= 2
    assert result.checked["sent"] == 2 * 2 * len(gathers)  # of two ranks, on two ranks


def test_tables_without_pieces_say_so(folder: Path, tmp_path: Path) -> None:
    """As an earlier version wrote them."""
    parquet = pytest.importorskip("pyarrow.parquet")
    export_ranks(folder / "in-one.kscope", tmp_path / "tables")
    for file in (tmp_path / "tables" / "collectives").rglob("*.parquet"):
        parquet.write_table(parquet.ParquetFile(file).read().drop_columns(["pieces"]), file)
    result = kernelscope.ranks(tmp_path / "tables")
    assert "all-gathers into one tensor with the values that were sent were not compared" in "\n".join(
        result.notes
    )
    assert result.first is not None  # the two ranks got different values; which is wrong is not known
    assert result.first.suspects == (0, 1)


def test_of_many_ranks_each_reads_the_pieces_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = GatheredPieces()
    members = tuple(range(100))
    pieces._members["wide"] = members
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 90)
    found = pieces._pieces("output", torch.zeros(300), 3, "wide")
    places = {int(name.removeprefix("output[").removesuffix("]")) for name, _ in found}
    assert places == {*range(90, 100), *range(54)}
    assert all(piece.storage_offset() == 3 * int(name[7:-1]) for name, piece in found)
