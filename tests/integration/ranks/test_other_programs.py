"""Memory that the program itself writes unseen gives no alarm; what only one rank has, does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.export.rank_dataset import export_ranks

PROGRAM = Path(__file__).parent / "other_programs.py"
HANDS = ("by-hand", "other-beginnings", "one-unreduced")
SEEN = ("new-thread", "hook")
NEW = ("other-rate", "numpy-on-one", "custom", "other-threads")
WAYS = (
    "unused",
    "numpy",
    "thread",
    *SEEN,
    "numpy-flipped",
    *HANDS,
    *NEW,
    "killed",
)  # the last one ends rank 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    folder = tmp_path_factory.mktemp("others")
    words = [[PROGRAM, str(rank), "2", folder, *WAYS] for rank in (0, 1)]
    first, second = warm_python.run_together(*words)
    assert first.returncode == 0, first.stderr
    assert second.returncode != 0
    return folder


def test_batch_norm_and_unused_parameters_give_no_alarm(folder: Path) -> None:
    result = kernelscope.ranks(folder / "unused.kscope")
    assert not result, str(result)
    assert not result.notes


@pytest.mark.parametrize("way", ["numpy", "thread"])
def test_what_the_program_writes_unseen_on_all_ranks_is_a_note(folder: Path, way: str) -> None:
    result = kernelscope.ranks(folder / f"{way}.kscope")
    assert not result, str(result)
    [note] = result.notes
    assert note.startswith("on all 2 ranks, code that is not recorded"), note
    assert "other_programs.py:" in note


def test_the_thread_that_wrote_unseen_is_a_finding(folder: Path) -> None:
    (finding,) = kernelscope.load(folder / "thread.kscope").findings
    assert finding.kind == "unseen-operators"
    assert "4 on thread writer (aten::copy_ 4×)" in finding.message


@pytest.mark.parametrize("way", SEEN)
def test_what_runs_on_threads_that_can_be_observed_is_recorded(folder: Path, way: str) -> None:
    result = kernelscope.ranks(folder / f"{way}.kscope")
    assert not result, str(result)
    assert not result.notes
    assert not kernelscope.load(folder / f"{way}.kscope").findings


def test_the_callback_of_a_communication_hook_has_its_phase_and_line(folder: Path) -> None:
    run = kernelscope.load(folder / "hook.kscope")
    unpacked = [
        call
        for call in run.select(kernel="aten.copy_.default")
        if call.site.args[1].tensor.dtype == "float16"
    ]
    assert len(unpacked) == 4
    for call in unpacked:
        assert call.phase == "backward"
        assert "other_programs.py" in call.origin.file


def test_a_flip_beside_what_the_program_writes_is_named(folder: Path, tmp_path: Path) -> None:
    in_memory = kernelscope.ranks(folder / "numpy-flipped.kscope")
    export_ranks(folder / "numpy-flipped.kscope", tmp_path / "tables")
    for result in (in_memory, kernelscope.ranks(tmp_path / "tables")):
        assert result.first is not None
        assert (result.first.kind, result.first.suspects, result.first.step) == ("changed-in-memory", (1,), 1)
        assert result.first.phase == "optimizer"
        assert "the memory was corrupted, or code that is not recorded" in result.first.reason
        assert in_memory.notes == result.notes


def test_replicas_that_do_not_agree(folder: Path) -> None:
    """It is not known which parameters are replicas, unless their gradients are the same on all ranks."""
    clean, other, unreduced = (kernelscope.ranks(folder / f"{way}.kscope") for way in HANDS)
    assert (clean.status, clean.notes) == (0, ())
    assert other.first is not None, str(other)
    assert (other.first.kind, other.first.suspects, other.status) == ("inputs-differ", (0, 1), 1)
    assert "began with values that differ from those of rank 1" in other.first.reason
    assert (bool(unreduced), unreduced.status) == (False, 2), str(unreduced)
    assert unreduced.open_question.startswith("1 of "), unreduced.open_question
    assert "aten.addcdiv_.default at " in unreduced.open_question
    assert "in step 0: if these are replicas, their gradients were not reduced" in unreduced.open_question
    assert str(unreduced).startswith("undecided: 1 of ")
    assert "agree" not in str(unreduced).splitlines()[0]


def test_a_rank_with_another_learning_rate_is_named(folder: Path) -> None:
    result = kernelscope.ranks(folder / "other-rate.kscope")
    assert result.first is not None, str(result)
    assert (result.first.kind, result.first.step, result.first.phase) == ("inputs-differ", 0, "optimizer")
    assert "differ from those of rank 1" in result.first.reason
    assert result.first.origin is not None
    assert result.first.origin.file.endswith("other_programs.py")


def test_an_array_of_numpy_that_one_rank_writes_to_gives_no_alarm(folder: Path) -> None:
    result = kernelscope.ranks(folder / "numpy-on-one.kscope")
    assert (bool(result), result.status, result.notes) == (False, 0, ()), str(result)


def test_custom_operators_may_depend_on_the_rank(folder: Path) -> None:
    result = kernelscope.ranks(folder / "custom.kscope")
    assert (bool(result), result.status) == (False, 0), str(result)
    [note] = result.notes
    assert "custom operators were not compared between ranks" in note
    assert "other_programs.own_part.default" in note
    assert result.checked["sent"] == 2


def test_a_rank_with_other_settings_is_named(folder: Path) -> None:
    """The same inputs and other results, because it has another number of threads."""
    result = kernelscope.ranks(folder / "other-threads.kscope")
    assert result.first is not None, str(result)
    assert (result.first.kind, result.first.kernel_name) == ("computed-differently", "aten.sum.default")
    assert "with different settings, which `kernelscope diff RUN --ranks 1,0` shows" in result.first.reason


@pytest.mark.parametrize("way", [*HANDS, *NEW])
def test_tables_give_the_same_answer(folder: Path, tmp_path: Path, way: str) -> None:
    export_ranks(folder / f"{way}.kscope", tmp_path / way)
    assert (
        kernelscope.ranks(tmp_path / way).to_json() == kernelscope.ranks(folder / f"{way}.kscope").to_json()
    )


def test_tables_without_updates_say_so(folder: Path, tmp_path: Path) -> None:
    """As an earlier version wrote them."""
    export_ranks(folder / "by-hand.kscope", tmp_path / "tables")
    shutil.rmtree(tmp_path / "tables" / "updates")
    [note] = kernelscope.ranks(tmp_path / "tables").notes
    assert "tensors that the optimizer updates were not compared; export the run again" in note


@pytest.mark.slow  # it compiles two programs
def test_a_flip_in_a_table_that_only_compiled_code_reads_is_named(
    tmp_path: Path, warm_python: WarmPython
) -> None:
    ways = ("compiled", "compiled-flipped")
    for done in warm_python.run_together(*[[PROGRAM, str(rank), "2", tmp_path, *ways] for rank in (0, 1)]):
        assert done.returncode == 0, done.stderr
    clean = kernelscope.ranks(tmp_path / "compiled.kscope")
    assert not clean, str(clean)
    export_ranks(tmp_path / "compiled-flipped.kscope", tmp_path / "tables")
    in_memory = kernelscope.ranks(tmp_path / "compiled-flipped.kscope")
    for result in (in_memory, kernelscope.ranks(tmp_path / "tables")):
        assert result.first is not None
        assert (result.first.kind, result.first.suspects, result.first.step) == ("changed-in-memory", (1,), 2)
        assert result.first.graph
        assert "had the same value on all ranks in the 2 earlier calls" in result.first.reason
    assert in_memory.to_json()["by_rank"] == kernelscope.ranks(tmp_path / "tables").to_json()["by_rank"]


def test_of_a_rank_that_was_killed_the_step_is_not_made_up(folder: Path) -> None:
    """Its last calls are only in the flight recorder, which has no steps."""
    result = kernelscope.ranks(folder / "killed.kscope")
    assert not result, str(result)
    [note] = [note for note in result.notes if note.startswith("rank 1 did not end normally")]
    found = re.search(r"its last call is (\d+), .*, step (\d+)( or later)?$", note)
    assert found is not None, note
    if found[3]:
        assert 1 <= int(found[2]) <= 3, note
    else:
        assert int(found[2]) == 3, note
    assert result.ranks[1].calls == int(found[1]) + 1
