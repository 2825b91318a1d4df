"""One process against two ranks: clean programs give no alarm, and what is planted to be wrong is named."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.docs_blocks import all_blocks
from tests.support.json_schemas import wrong_in
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.sharding.declared import DTensors
from kernelscope.cli import main
from kernelscope.errors import RunError
from kernelscope.store.ranks.rank_parts import rank_parts

PROGRAM = Path(__file__).parent / "sharded_trials.py"
CLEAN = ("tp", "sp", "fsdp", "hand", "moved")
# What is planted: the kind, the operator, and the operator from which on it is wrong.
PLANTED = {
    "unreduced-mlp": ("missing-all-reduce", "aten.add.Tensor", "forward", "aten.addmm.default"),
    "unreduced-attention": ("missing-all-reduce", "aten.add.Tensor", "forward", "aten.addmm.default"),
    "claimed": ("missing-all-reduce", "aten.add.Tensor", "forward", "aten.addmm.default"),
    "hand-unreduced": ("missing-all-reduce", "aten.add.Tensor", "backward", "aten.mm.default"),
    "norms": (
        "missing-all-reduce",
        "aten.lerp_.Scalar",
        "optimizer",
        "aten.native_layer_norm_backward.default",
    ),
    "dp-unreduced": (
        "missing-all-reduce",
        "aten.lerp_.Scalar",
        "optimizer",
        "aten.embedding_dense_backward.default",
    ),
    "attention-0": ("wrong-placement", "aten.addmm.default", "forward", "aten.native_layer_norm.default"),
    "mlp-1": ("wrong-placement", "aten.addmm.default", "forward", "aten.native_layer_norm.default"),
    "head": ("wrong-placement", "aten.mm.default", "forward", None),
    "moved-sum": ("missing-all-reduce", "aten.add.Tensor", "forward", "aten._unsafe_view.default"),
    "moved-placement": ("wrong-placement", "aten.mm.default", "forward", "aten.native_layer_norm.default"),
}
MOVED = ("moved", "moved-sum", "moved-placement")  # by explicit calls of redistribute()


def _recorded(warm_python: WarmPython, folder: Path, values: str, *ways: str) -> Path:
    words = [[PROGRAM, "0", "1", folder, values, "one", *(["one-moved"] if "moved" in ways else [])]]
    words += [[PROGRAM, str(r), "2", folder, values, *ways] for r in (0, 1)]
    for done in warm_python.run_together(*words):
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    return _recorded(warm_python, tmp_path_factory.mktemp("sharded"), "save", *CLEAN, *PLANTED)


def _reference(folder: Path, way: str) -> Path:
    return folder / ("one-moved.kscope" if way in MOVED else "one.kscope")


@pytest.mark.parametrize("way", CLEAN)
def test_a_clean_program_gives_no_alarm(folder: Path, way: str) -> None:
    result = kernelscope.diff_sharded(_reference(folder, way), folder / f"{way}.kscope")
    assert not result, str(result)
    assert result.compared["calls"] > 0.95 * result.compared["reference_calls"], str(result)
    assert not result.compared["without_values"]
    assert bool(result.compared["declared"]) == (way != "hand"), "by hand, there are no DTensors"
    partial = dict.fromkeys(("tp", "hand", "moved"), "Partial(sum)")
    expected = {"fsdp": "Shard(0) times 2", "sp": "Shard(1)", **partial}[way]
    assert result.placements[expected] >= 4


@pytest.mark.parametrize("way", PLANTED)
def test_what_is_planted_is_named(folder: Path, way: str) -> None:
    kind, operator, phase, since = PLANTED[way]
    first = kernelscope.diff_sharded(_reference(folder, way), folder / f"{way}.kscope").first
    assert first is not None
    assert (first.kind, first.call.kernel_name, first.call.phase) == (kind, operator, phase), first.reason
    assert (first.since.kernel_name if first.since else None) == since
    assert first.ranks == (0, 1)
    assert first.call.step == 0
    assert first.call.origin is not None
    assert first.call.origin.file.endswith("sharded_trials.py")


def test_the_answer_says_where_and_why(folder: Path) -> None:
    def answer(way: str) -> Any:
        return kernelscope.diff_sharded(folder / "one.kscope", folder / f"{way}.kscope").first

    claimed, head, gathered = answer("claimed"), answer("head"), answer("attention-0")
    assert (claimed.argument, claimed.held, claimed.declared) == ("other", "Partial(sum)", "Replicate")
    assert "a DTensor declares it Replicate" in claimed.reason
    assert claimed.arguments == (("self", "Replicate"), ("other", "Partial(sum)"))
    assert (head.argument, head.declared, head.held) == ("mat2", "Shard(1)", "StridedShard(1, 2)")
    assert "put together as StridedShard(1, 2)" in head.reason
    assert "their layout was Shard(1), and call" in gathered.reason
    assert "all_gather_into_tensor" in gathered.reason
    assert "the mean over the ranks" in answer("dp-unreduced").reason


def test_parts_know_meshes_and_placements(folder: Path) -> None:
    for rank, run in rank_parts(folder / "tp.kscope").runs.items():
        [mesh] = [json.loads(mark.text) for mark in run.marks if mark.kind == "device-mesh"]
        assert (mesh["shape"], mesh["ranks"], mesh["dimensions"]) == ([2], [0, 1], ["tp"])
        assert mesh["coordinate"] == [rank]
        groups = {json.loads(mark.text)["name"] for mark in run.marks if mark.kind == "process-group"}
        assert set(mesh["groups"]) <= groups
        found = DTensors(run.marks)
        assert not found.unreadable
        rows = [
            o for o in found.operators if o.name == "aten.addmm.default" and o.results[0].layout.is_partial
        ]
        assert len(rows) == 2 * 2 * 2, "of each layer and step, two linear layers are split by rows"
        assert {str(argument.layout) for argument in rows[0].arguments} == {
            "Replicate",
            "Shard(1)",
            "Shard(0)",
        }
        assert [call.kernel_name for call in run.calls if found.operator_of(call) is rows[0]][-1] == rows[
            0
        ].name
    assert not any(
        mark.kind.startswith(("dtensor", "device")) for mark in kernelscope.load(folder / "one.kscope").marks
    )


def test_the_command_line_has_both_forms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(folder / "one.kscope")
    assert main(["diff", one, str(folder / "tp.kscope")]) == 0
    assert "the values of 2 ranks together equal those of one process" in capsys.readouterr().out
    assert main(["diff", one, str(folder / "unreduced-mlp.kscope")]) == 1
    text = capsys.readouterr().out
    assert text.startswith("missing-all-reduce: ranks 0, 1, step 0, call ")
    assert "reads other: Partial(sum)" in text
    assert "sharded_trials.py" in text
    for way, status in (("tp", 0), ("head", 1)):
        assert main(["diff", "--json", one, str(folder / f"{way}.kscope")]) == status
        form = json.loads(capsys.readouterr().out)
        assert not wrong_in("diff", form)
        assert bool(form["first"]) == bool(status) == form["fails"]
    assert main(["diff", "--fail-on", "nothing", one, str(folder / "head.kscope")]) == 0


def test_the_block_of_the_docs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder / "one.kscope", tmp_path / "one.kscope")
    shutil.copytree(folder / "unreduced-mlp.kscope", tmp_path / "sharded.kscope")
    monkeypatch.chdir(tmp_path)
    [_of_ranks, block] = [block for block in all_blocks("ranks.md") if block.language == "python"]
    space: dict[str, Any] = {"kernelscope": kernelscope}
    exec(block.text, space)
    assert space["result"].first.kind == "missing-all-reduce"


def test_what_cannot_be_compared_gets_a_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    shutil.copytree(folder / "tp.kscope", tmp_path / "lost.kscope")
    shutil.rmtree(tmp_path / "lost.kscope" / "rank-1")
    with kernelscope.record(path=tmp_path / "without", ops="all"):
        torch.ones(3).sin()
    with kernelscope.record(path=tmp_path / "other", values="save", ops="all"):
        torch.ones(3).sin()
    with kernelscope.record(path=tmp_path / "empty", values="save", ops="all"):
        pass
    many, one = folder / "tp.kscope", folder / "one.kscope"
    for a, b, says in [
        (one, tmp_path / "lost.kscope", "lacks rank 1 of 2"),
        (tmp_path / "other.kscope", many, "different programs"),
        (tmp_path / "empty.kscope", many, "is empty"),
        (tmp_path / "without.kscope", many, "has no values"),
        (many, many, "has to be that of one process"),
        (one, one, "has no ranks"),
    ]:
        with pytest.raises(RunError, match=says):
            kernelscope.diff_sharded(a, b)
    assert main(["diff", str(many), str(one)]) == 2
    assert "several ranks" in capsys.readouterr().err
    assert main(["diff", str(one), str(many), "--save"]) == 2
    assert "--save cannot be combined with a run of several ranks" in capsys.readouterr().err


@pytest.mark.slow
def test_ranks_that_failed_do_not_agree_with_one_process(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for way in ("tp", "unreduced-mlp"):
        shutil.copytree(folder / f"{way}.kscope", tmp_path / f"{way}.kscope")
        with closing(sqlite3.connect(tmp_path / f"{way}.kscope" / "rank-1" / "run.db")) as database:
            database.execute("insert into info values ('exception', '\"RuntimeError: too wide\"')")
            database.commit()
    one = str(folder / "one.kscope")
    assert main(["diff", one, str(tmp_path / "tp.kscope")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "rank 1 ended with an exception: RuntimeError: too wide; the 9" in said
    assert main(["diff", one, str(tmp_path / "unreduced-mlp.kscope")]) == 1
    assert "note: rank 1 ended with an exception" in capsys.readouterr().out


def test_statistics_are_enough_for_a_sum_that_is_not_made(tmp_path: Path, warm_python: WarmPython) -> None:
    folder = _recorded(warm_python, tmp_path, "stats", "fsdp", "unreduced-mlp")
    clean = kernelscope.diff_sharded(folder / "one.kscope", folder / "fsdp.kscope")
    assert not clean, str(clean)
    assert clean.compared["calls"] > 0.95 * clean.compared["reference_calls"], str(clean)
    assert any("compared by statistics" in note for note in clean.notes)
    first = kernelscope.diff_sharded(folder / "one.kscope", folder / "unreduced-mlp.kscope").first
    assert first is not None
    assert (first.kind, first.argument, first.held) == ("missing-all-reduce", "other", "Partial(sum)")


@pytest.mark.slow
def test_hashes_tell_slices_and_replicas(folder: Path, tmp_path: Path, warm_python: WarmPython) -> None:
    hashed = _recorded(warm_python, tmp_path, "hash", "fsdp", "claimed")
    clean = kernelscope.diff_sharded(folder / "one.kscope", hashed / "fsdp.kscope")
    assert not clean, str(clean)
    assert clean.placements["Shard(0)"] > 50, "slices of the tensors that the run of one process has saved"
    assert "calls that could be compared" in str(clean)
    assert any("with hashes alone" in note for note in clean.notes)
    first = kernelscope.diff_sharded(folder / "one.kscope", hashed / "claimed.kscope").first
    assert first is not None
    assert (first.kind, first.declared) == ("values-differ", "Replicate")
    assert "record both with --values save" in first.reason
