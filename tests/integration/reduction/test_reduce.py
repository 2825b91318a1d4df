"""`kernelscope reduce`: what it keeps, what it says of bad input, and how it goes on after a crash."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tests.support.torch_release import RELEASE
from torch.fx import symbolic_trace

import kernelscope
from kernelscope.errors import RunError
from kernelscope.reduction.candidates import Candidate, of_module

ROOT = Path(__file__).parents[3]


class Program(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = torch.sin(x) + y
        b = torch.tanh(a) * 2
        c = torch.linalg.norm(b, dim=0, keepdim=True)
        return (b / c).relu().sum(1)


@pytest.fixture
def candidate() -> Candidate:
    torch.manual_seed(0)
    return of_module(symbolic_trace(Program()), [torch.randn(6, 8), torch.randn(6, 8)])


def has(candidate: Candidate, *names: str) -> bool:
    """Whether the graph has functions of these names."""
    found = {getattr(n.target, "__name__", str(n.target)) for n in candidate.module.graph.nodes}
    return all(name in found for name in names)


def test_a_check_of_ones_own(candidate: Candidate) -> None:
    sizes: list[int] = []

    def check(c: Candidate) -> bool:
        sizes.append(c.size)
        return has(c, "tanh") and c.inputs[0].shape[-1] >= 3

    found = kernelscope.reduce(candidate, check=check)
    assert (found.nodes_before, found.nodes) == (8, 1)
    assert [tuple(v.shape) for v in found.candidate.inputs] == [(1, 3)]
    assert has(found.candidate, "tanh")
    assert len(sizes) == found.trials + 2, "the graph of nothing, and the first one once more"


def test_nodes_that_are_needed_together(candidate: Candidate) -> None:
    found = kernelscope.reduce(candidate, check=lambda c: has(c, "sin", "relu"))
    assert found.nodes == 2
    assert has(found.candidate, "sin", "relu")
    made = found.candidate.module(*found.candidate.inputs)
    assert len(made) == 2


def test_a_check_that_never_fails(candidate: Candidate) -> None:
    with pytest.raises(RunError, match="nothing to reduce: the check passes for the whole graph"):
        kernelscope.reduce(candidate, check=lambda c: False)


def test_a_check_that_always_fails(candidate: Candidate) -> None:
    with pytest.raises(RunError, match="it does not depend on the graph"):
        kernelscope.reduce(candidate, check=lambda c: True)


def test_a_failure_that_comes_and_goes(candidate: Candidate) -> None:
    def sometimes(times: int) -> Any:
        calls = itertools.count()
        return lambda c: has(c, "tanh") and next(calls) % times == 0

    with pytest.raises(RunError, match="the failure is not deterministic"):
        kernelscope.reduce(candidate, check=sometimes(2))
    found = kernelscope.reduce(candidate, check=sometimes(2), repeats=4)
    assert (found.nodes, has(found.candidate, "tanh")) == (1, True)


def test_an_interrupted_search_goes_on(candidate: Candidate, tmp_path: Path) -> None:
    path, asked = tmp_path / "journal.jsonl", list[str]()

    def check(c: Candidate, most: int) -> bool:
        if c.size:
            asked.append(c.key)
        if len(asked) > most:
            raise KeyboardInterrupt
        return has(c, "tanh")

    with pytest.raises(KeyboardInterrupt):
        kernelscope.reduce(candidate, check=lambda c: check(c, 4), journal=path)
    first, lost = asked[:-1], asked[-1]
    asked.clear()
    found = kernelscope.reduce(candidate, check=lambda c: check(c, 99), journal=path, resume=True)
    assert has(found.candidate, "tanh")
    again = [key for key in asked if key in first]
    assert len(again) == 1, "only the first graph is confirmed once more"
    assert lost in asked, "the trial that was under way is run again: nothing is known of it"


def test_nothing_is_wrong() -> None:
    with pytest.raises(RunError, match=r"no exception was raised|nothing to judge"):
        kernelscope.reduce(lambda: torch.compile(torch.sin)(torch.ones(4)))


BROKEN = """
import torch
from torch._inductor import lowering
{fault}
@torch.compile({dynamic})
def f(x, w):
    y = (x @ w).relu()
    z = y.tanh() + 1
    return (torch.{function}(z) * 2).sum(1)

torch.manual_seed(0)
f(torch.randn(8, 16), torch.randn(16, 16))
"""
RAISING = """
def broken(*args, **kwargs):
    raise ValueError("no such lowering")
lowering.lowerings[torch.ops.aten.erf.default] = broken
"""
CRASHING = """
import os, time
from kernelscope.reduction import script_search
original = script_search.shadow_check
def crashing(candidate):
    if candidate.size == {size}:
        {how}
    return original(candidate)
script_search.shadow_check = crashing
"""


def reduce_script(folder: Path, source: str, *options: str) -> tuple[int, dict[str, Any], str]:
    (folder / "script.py").write_text(source)
    words = [sys.executable, "-m", "kernelscope", "reduce", "--json", *options, "script.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.timeout(600)
def test_an_exception_of_the_compiler(tmp_path: Path) -> None:
    """With dynamic shapes, and through the command line: the same exception with one node."""
    source = BROKEN.format(fault=RAISING, dynamic="dynamic=True", function="erf")
    status, told, said = reduce_script(tmp_path, source)
    assert status == 0, said
    assert told["nodes"] == 1
    assert told["nodes_before"] >= 6
    assert told["failure"].startswith("ValueError: no such lowering") or "no such lowering" in told["failure"]
    script = (tmp_path / "script-reduced" / "reduced.py").read_text()
    assert "erf" in script
    assert "dynamic=True" in script
    assert told["reproduces_alone"] is False  # the fault is the program's own


@pytest.mark.timeout(600)
def test_a_fault_that_only_the_program_has_is_not_torchs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BROKEN.format(fault=RAISING, dynamic="", function="erf"))
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", "reduce", "script.py"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "does not reproduce it with torch alone: something that the program does or imports" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "how", ["import os; os.abort()", "import time; time.sleep(1000)"], ids=["crash", "hang"]
)
def test_a_trial_that_does_not_come_back(tmp_path: Path, how: str) -> None:
    """It is an outcome: the search goes on without it, in another process."""
    fault = RAISING + CRASHING.format(size=3, how=how)
    source = BROKEN.format(fault=fault, dynamic="", function="erf")
    status, told, said = reduce_script(tmp_path, source, "--timeout", "60")
    assert status == 0, said
    assert told["nodes"] == 1
    assert "continuing without it" in said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_script_that_does_not_fail(tmp_path: Path) -> None:
    status, told, said = reduce_script(tmp_path, BROKEN.format(fault="", dynamic="", function="erf"))
    assert status == 2
    assert "nothing fails" in told["problem"]
    assert "nothing fails" in said


def test_an_optimizers_step() -> None:
    """It writes to what requires gradients; the `no_grad` around that is not in its graph."""
    from torch._inductor import lowering

    weight = torch.nn.Parameter(torch.randn(5, 3))
    weight.grad = torch.ones_like(weight)
    step = torch.compile(torch.optim.SGD([weight], weight_decay=0.1).step)

    def broken(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no such lowering")

    with patch.dict(lowering.lowerings, {torch.ops.aten.add.Tensor: broken}):
        found = kernelscope.reduce(step)
    assert (found.nodes_before, found.nodes) == (2 if RELEASE > (2, 11) else 3, 1)  # 2.11 copies, too
    assert "no such lowering" in str(found)
