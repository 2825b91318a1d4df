"""One bit flipped in one kernel's output on one rank: its rank, step and kernel are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelscope

PROGRAM = Path(__file__).parent / "trials.py"


def launched(folder: Path, size: int, trials: int) -> list[list[dict[str, Any]]]:
    """What each rank tells of its trials."""
    words = [[sys.executable, str(PROGRAM), str(r), str(size), str(folder), str(trials)] for r in range(size)]
    running = [subprocess.Popen(each) for each in words]
    assert [process.wait(1800) for process in running] == [0] * size
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
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("flips")
    return folder, launched(folder, 2, 5)


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


@pytest.mark.slow
@pytest.mark.parametrize(("size", "trials"), [(2, 20), (4, 20), (8, 10)])
def test_a_hundred_flipped_bits_are_named(tmp_path: Path, size: int, trials: int) -> None:
    told = launched(tmp_path, size, trials)
    assert missed(tmp_path, told) == []
    for how in ("ddp", "fsdp"):
        assert not kernelscope.ranks(tmp_path / f"clean-{how}")
