"""Compiled functions that Dynamo leaves to Python because of where they are called, beside compiled code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import kernelscope
from kernelscope.probes.dynamo.nothing_compiled import has_nothing_to_tell

X = torch.ones(4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of other tests
    yield
    torch._dynamo.reset()


def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def without_breaks(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def under_a_mode(function: Callable[..., Any]) -> None:
    with FlopCounterMode(display=False):
        function(X)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (lambda function: torch.func.vmap(function)(torch.ones(3, 4)), "functorch"),
        (lambda function: torch.func.jvp(function, (X,), (X,)), "functorch"),
        (under_a_mode, "torch dispatch mode"),
    ],
    ids=["vmap", "jvp", "dispatch mode"],
)
def test_what_was_left_to_python_because_of_where_it_is_called(
    calls: Callable[[Any], Any], says: str
) -> None:
    with kernelscope.record() as run:
        torch.compile(without_breaks)(X)
        calls(torch.compile(plus))
    assert len(run) == 1
    (finding,) = run.findings
    assert finding.kind == "ran-in-eager"
    assert f"plus ({__file__}:" in finding.message
    assert says in finding.message
    assert 'ops="all"' in finding.message


def test_a_process_that_left_its_functions_to_python_is_no_mere_helper() -> None:
    with kernelscope.record() as helper:
        torch.ones(4) + 1
    assert has_nothing_to_tell(helper.findings)
    with kernelscope.record() as rank:
        torch.func.vmap(torch.compile(plus))(torch.ones(3, 4))
    assert not rank.calls
    assert not has_nothing_to_tell(rank.findings)


_SPAWNS = """
import multiprocessing, torch
def plus(x):
    return x + 1
def child(compiles):
    if compiles:
        torch.vmap(torch.compile(plus))(torch.ones(3, 4))
if __name__ == "__main__":
    for compiles in (True, False):
        process = multiprocessing.get_context("spawn").Process(target=child, args=(compiles,))
        process.start()
        process.join()
"""


@pytest.mark.slow
def test_the_part_of_such_a_process_is_kept(tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(_SPAWNS)
    command = [sys.executable, "-m", "kernelscope", "run", "-o", "run.kscope", "spawns.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (part,) = (tmp_path / "run.kscope").glob("child-*")
    (finding,) = kernelscope.load(part).findings
    assert "Dynamo left plus" in finding.message
