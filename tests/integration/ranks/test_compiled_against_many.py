"""Tensor parallel, compiled: compared with one process where both have the same kernels, else not judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.cli import main
from kernelscope.errors import RunError

pytestmark = pytest.mark.slow  # it compiles eight programs

PROGRAM = Path(__file__).parent / "compiled_trials.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    words = [[PROGRAM, "0", "1", folder, "one", "eager"]]
    words += [[PROGRAM, str(rank), "2", folder, "tp", "unreduced", "claimed", "placed"] for rank in (0, 1)]
    for done in warm_python.run_together(*words):
        assert done.returncode == 0, done.stderr
    return folder


def test_a_clean_compiled_program_gives_no_alarm(folder: Path) -> None:
    result = kernelscope.diff_sharded(folder / "one.kscope", folder / "tp.kscope")
    assert not result, str(result)
    compared = result.compared
    assert compared["leading_unpaired"] <= 0.5 * compared["leading_calls"], str(result)
    assert result.placements["Partial(sum)"] >= 4
    graphs = {call.graph.name for call in kernelscope.load(folder / "one.kscope").calls if call.graph}
    assert len(graphs) == 2, "forward and backward are compiled"


@pytest.mark.parametrize("way", ["unreduced", "claimed"])
def test_a_sum_that_is_not_made_is_named_in_compiled_code(folder: Path, way: str) -> None:
    first = kernelscope.diff_sharded(folder / "one.kscope", folder / f"{way}.kscope").first
    assert first is not None
    assert (first.kind, first.call.phase) == ("missing-all-reduce", "forward"), first.reason
    assert first.since is not None
    assert first.since.kernel_name == "extern_kernels.addmm"
    assert first.since.origin is not None
    assert first.since.origin.file.endswith("compiled_trials.py")


def test_a_wrong_placement_is_named_in_compiled_code(folder: Path) -> None:
    """The calls behind it have no counterpart: what the all-gather joined is read by the first that has."""
    first = kernelscope.diff_sharded(folder / "one.kscope", folder / "placed.kscope").first
    assert first is not None
    assert (first.kind, first.call.phase) == ("wrong-placement", "forward"), first.reason
    assert first.held == "Partial(sum)"
    assert "_c10d_functional.all_gather_into_tensor.default, joined the parts in another way" in first.reason
    assert first.since is not None
    assert first.since.origin is not None
    assert first.since.origin.file.endswith("compiled_trials.py")


@pytest.mark.parametrize("way", ["tp", "unreduced", "claimed", "placed"])
def test_kernels_without_counterparts_are_neither_agreement_nor_an_accusation(
    folder: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    eager, many = folder / "eager.kscope", folder / f"{way}.kscope"
    with pytest.raises(RunError, match=r"not comparable: .* have no counterpart on the ranks"):
        kernelscope.diff_sharded(eager, many)
    assert main(["diff", str(eager), str(many)]) == 2
    assert "record both without torch.compile" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("way", ["tp", "unreduced", "claimed", "placed"])
def test_the_ranks_among_themselves_agree(folder: Path, way: str) -> None:
    """Each computes what it is told to: a sum that is not made is none of a rank's faults."""
    assert not kernelscope.ranks(folder / f"{way}.kscope")
