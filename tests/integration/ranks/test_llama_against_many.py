"""A model like Llama: what optimizers make of rounding is not an alarm, and errors are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.analysis.sharding.result import ShardedDifference

PROGRAM = Path(__file__).parent / "llama_trials.py"
# A run of several ranks, and the run of one process that it is compared with.
QUICK = {"vocabulary+adamw": "one+adamw"}
CLEAN = {
    **{f"{way}+adamw": "one+adamw" for way in ("tp", "loss", "fsdp", "ddp")},
    **{f"{way}+adamw+clip": "one+adamw+clip" for way in ("sp", "fsdp", "ddp-views")},
    "fsdp+adamw+clip-by-hand": "one+adamw+clip-by-hand",
    "fsdp+adamw+accumulated": "one+adamw+accumulated",
    "vocabulary+adamw+tied": "one+adamw+tied",
    "fsdp+foreach": "one+foreach",
    "fsdp+fused": "one+fused",
    "tp+adagrad": "one+adagrad",
    "tp+rmsprop": "one+rmsprop",
    "tp+lion": "one+lion",
    "fsdp+lion": "one+lion",
    "tp+factored": "one+factored",
    "ddp+factored": "one+factored",
}
# What is planted, and then: the kind, the ranks, the operator, and what the reason says.
QUICK_PLANTED = {
    "fsdp+adamw+other-lr": (
        "values-differ", (1,), "aten.mul_.Tensor",
        "the number other is 0.9998 on rank 1, and 0.9999 in the run of one process",
    ),
    "ddp+adamw+stale": ("values-differ", (1,), "aten.lerp_.Scalar", "rank 1 reads a "),
}  # fmt: skip
PLANTED = {
    "tp+adamw+other-lr": ("values-differ", (1,), "aten.mul_.Tensor", "the number other is 0.9998 on rank 1"),
    "tp+adamw+late-lr": ("values-differ", (1,), "aten.mul_.Tensor", "the number other is 0.99985 on rank 1"),
    "vocabulary+adamw+other-token": (
        "values-differ", (1,), "aten.embedding.default", "reads rows that differ from the reference's",
    ),
    "ddp+lion+other-lr": ("values-differ", (1,), "aten.add_.Tensor", "the number alpha is -0.02 on rank 1"),
    "ddp+factored+other-lr": ("values-differ", (1,), "aten.add_.Tensor", "the number alpha is -0.02"),
    "fsdp+adamw+other-beta": ("values-differ", (0, 1), "aten.addcmul_.default", "on ranks 0, 1, and 0.00100"),
    "fsdp+adamw+stale": ("values-differ", (1,), "aten.lerp_.Scalar", "rank 1 reads a "),
    "fsdp-sums+adamw": ("wrong-placement", (0, 1), "aten.lerp_.Scalar", "put together as Shard(0) times 2"),
    "ddp-forgets+adamw": ("missing-all-reduce", (0, 1), "aten.lerp_.Scalar", "the mean over the ranks is"),
    "shifted-words+adamw": ("values-differ", (0, 1), "aten.embedding.default", "the reference's weight"),
    "fsdp+adamw+clip-alone": (
        "missing-all-reduce",
        (0, 1),
        "aten.reciprocal.default",
        "norm of its own part",
    ),
    "vocabulary+adamw+untied": ("values-differ", (0, 1), "aten.add_.Tensor", "in any layout"),
}  # fmt: skip
ONE_OF = {"lion": "one+lion", "factored": "one+factored"}


def _reference(way: str) -> str:
    _, optimizer, *words = way.split("+")
    if "clip-alone" in words:
        return "one+adamw+clip-alone"
    return "one+adamw+tied" if "untied" in words else ONE_OF.get(optimizer, "one+adamw")


def _recorded(warm_python: WarmPython, folder: Path, alone: set[str], ways: list[str]) -> Path:
    words = [[PROGRAM, "0", "1", folder, "save", *sorted(alone)]]
    words += [[PROGRAM, str(rank), "2", folder, "save", *ways] for rank in (0, 1)]
    for done in warm_python.run_together(*words):
        assert done.returncode == 0, done.stderr
    return folder


def _gives_no_alarm(one: Path, many: Path) -> None:
    result = kernelscope.diff_sharded(one, many)
    assert not result, str(result)
    assert result.compared["calls"] > 0.95 * result.compared["reference_calls"], str(result)
    assert result.compared["without_values"] <= 2, str(result)
    assert result.compared["amplified"] < 8, str(result)


def _is_named(first: ShardedDifference | None, expected: tuple[str, tuple[int, ...], str, str]) -> None:
    kind, ranks, operator, reason = expected
    assert first is not None
    assert (first.kind, first.ranks, first.call.kernel_name) == (kind, ranks, operator), first.lines()
    assert reason in first.reason
    assert first.call.origin is not None
    assert first.call.origin.file.endswith("llama_trials.py")
    said = "rank 1" if ranks == (1,) else "ranks 0, 1"
    assert first.lines()[0].startswith(f"{kind}: {said}, step {first.call.step}, call {first.call.index}")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    return _recorded(
        warm_python, tmp_path_factory.mktemp("llama"), set(QUICK.values()), [*QUICK, *QUICK_PLANTED]
    )


@pytest.mark.parametrize("way", QUICK)
def test_a_vocabulary_split_by_words_and_adamw_give_no_alarm(quick: Path, way: str) -> None:
    _gives_no_alarm(quick / f"{QUICK[way]}.kscope", quick / f"{way}.kscope")


@pytest.mark.parametrize("way", QUICK_PLANTED)
def test_an_error_of_one_rank_is_named_with_that_rank(quick: Path, way: str) -> None:
    first = kernelscope.diff_sharded(quick / f"{_reference(way)}.kscope", quick / f"{way}.kscope").first
    _is_named(first, QUICK_PLANTED[way])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    alone = {*CLEAN.values(), *map(_reference, PLANTED)}
    return _recorded(warm_python, tmp_path_factory.mktemp("llama"), alone, [*CLEAN, *PLANTED])


@pytest.mark.slow
@pytest.mark.parametrize("way", CLEAN)
def test_a_clean_program_gives_no_alarm(folder: Path, way: str) -> None:
    _gives_no_alarm(folder / f"{CLEAN[way]}.kscope", folder / f"{way}.kscope")


@pytest.mark.slow
@pytest.mark.parametrize("way", PLANTED)
def test_what_is_planted_is_named(folder: Path, way: str) -> None:
    one = folder / f"{_reference(way)}.kscope"
    _is_named(kernelscope.diff_sharded(one, folder / f"{way}.kscope").first, PLANTED[way])
