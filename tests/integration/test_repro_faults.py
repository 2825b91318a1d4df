"""Planted faults: the script of the wrong call fails in a fresh interpreter, and passes without the fault.

`reduce` then ends at no more than three nodes, whose script fails with the fault and passes without it.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from tests.integration.faults.corpus import FAULTS
from tests.integration.faults.planting import Fault
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope.reduction.candidates import Candidate
from kernelscope.reduction.capture import capture
from kernelscope.reduction.failures import Failure
from kernelscope.reduction.journal import Journal
from kernelscope.reduction.opening import reduce_captured
from kernelscope.reduction.script import reduced_script
from kernelscope.reduction.trials import Trials, shadow_check
from kernelscope.repro import files
from kernelscope.repro.call_script import call_script
from kernelscope.repro.composing import Script
from kernelscope.repro.graph_script import graph_script

ROOT = Path(__file__).parents[2]
FIRST = {fault.family: fault.name for fault in reversed(FAULTS)}
# Each compiles several times, so on every change only some of them.
SCRIPTS, REDUCED = {"wrong operator", "swapped inputs"}, {"wrong operator", "wrong pass"}
CORPUS = "tests.integration.faults.corpus"


def marked(fault: Fault, families: set[str]) -> object:
    is_first = FIRST[fault.family] == fault.name and fault.family in families
    return pytest.param(fault, id=str(fault), marks=() if is_first else pytest.mark.slow)


def record(fault: Fault, path: Path, *, planted: bool) -> kernelscope.ShadowResult:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with ExitStack() as stack:
        stack.enter_context(fresh_cache())
        stack.enter_context(torch._inductor.config.patch({"cpp.simdlen": 1} | fault.config))
        stack.enter_context(fault.plant() if planted else nullcontext())
        stack.enter_context(kernelscope.record(values="save", stages=True, path=path))
        result = stack.enter_context(kernelscope.shadow())
        fault.program()
    torch._dynamo.reset()
    return result


def script_of(fault: Fault, path: Path, result: kernelscope.ShadowResult) -> Script:
    run, culprit = kernelscope.load(path), result.culprit
    assert culprit is not None
    if culprit.verdict == "wrong-stage":
        return graph_script(run, run.graphs[0].name)
    file, _, line = culprit.wrapper.rpartition(":")
    [call] = [
        c for c in run.calls if Path(c.wrapper_line[0]) == Path(file) and c.wrapper_line[1] == int(line)
    ]
    imports = [CORPUS] if "kernelscope_faults" in call.kernel_name else []
    return call_script(run, call.index, imports)


def status_of(path: Path, *, needs_corpus: bool) -> tuple[int, str]:
    """In a fresh interpreter that has torch, and does not know of kernelscope."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if needs_corpus:
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", [marked(fault, SCRIPTS) for fault in FAULTS])
def test_its_script_fails_and_passes_without_the_fault(fault: Fault, tmp_path: Path) -> None:
    wrong = record(fault, tmp_path / "wrong", planted=True)
    script = script_of(fault, tmp_path / "wrong.kscope", wrong)
    assert "import kernelscope" not in script.text
    needs_corpus = f"import {CORPUS}" in script.text
    status, said = status_of(files.write(script, tmp_path / "a"), needs_corpus=needs_corpus)
    assert status == 1, said
    assert "FAIL " in said
    if needs_corpus:
        return  # the operator itself is wrong, and stays so
    record(fault, tmp_path / "right", planted=False)
    index = int(script.name.rpartition("_")[2]) if script.name.startswith("repro_call") else None
    right = kernelscope.load(tmp_path / "right.kscope")
    clean = call_script(right, index) if index is not None else graph_script(right, right.graphs[0].name)
    status, said = status_of(files.write(clean, tmp_path / "b"), needs_corpus=False)
    assert status == 0, said


def run_here(path: Path, fault: Fault, *, planted: bool) -> int:
    """In this process, because the fault is planted in this process."""
    torch._dynamo.reset()
    with ExitStack() as stack:
        stack.enter_context(fresh_cache())
        stack.enter_context(torch._inductor.config.patch({"cpp.simdlen": 1} | fault.config))
        stack.enter_context(fault.plant() if planted else nullcontext())
        left = stack.enter_context(pytest.raises(SystemExit))
        runpy.run_path(str(path), run_name="__main__")
    torch._dynamo.reset()
    return int(left.value.code)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", [marked(fault, REDUCED) for fault in FAULTS])
def test_it_is_reduced_to_three_nodes(fault: Fault, tmp_path: Path) -> None:
    def program() -> None:
        with fault.plant():
            fault.program()

    def check(candidate: Candidate) -> Failure | None:
        with fault.plant():  # it plants one kernel each time
            return shadow_check(candidate)

    torch.manual_seed(0)
    with fresh_cache(), torch._inductor.config.patch({"cpp.simdlen": 1} | fault.config):
        captured = capture(program)
        assert captured.failure is not None
        found = reduce_captured(captured, Trials(check, Journal()))
        script = reduced_script(found)
    assert found.nodes <= 3, found
    assert captured.failure.is_same(found.failure), "another failure"
    assert found.failure.what == fault.verdict
    if "kernelscope_faults" in script.text:
        return  # needs an operator of the program's, and says so
    path = files.write(script, tmp_path)
    assert run_here(path, fault, planted=True) == 1
    assert run_here(path, fault, planted=False) == 0
