"""Planted faults, from the failure to its cause and to scripts that show it.

Of each: `repro` of the wrong call fails where only torch is installed, and passes without the fault; `reduce`
ends at no more than three nodes, whose script fails with the fault and passes without it; `bisect` ends at
the kernel or the pass that the fault was put into.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from tests.integration.faults.everything import FAULTS, marked
from tests.integration.faults.finding import Canaries, assert_found, planted
from tests.integration.faults.planting import Fault
from tests.integration.only_torch import OnlyTorch
from torch._inductor.utils import fresh_cache

import kernelscope
from kernelscope.reduction.api import reduce_captured
from kernelscope.reduction.candidate_trials import CandidateTrials, shadow_check
from kernelscope.reduction.candidates import Candidate
from kernelscope.reduction.capture import capture
from kernelscope.reduction.script import reduced_script
from kernelscope.repro import files
from kernelscope.repro.one_call import call_script
from kernelscope.repro.one_graph import graph_script
from kernelscope.repro.script_parts import Script
from kernelscope.trials.failure_signature import FailureSignature
from kernelscope.trials.journal import Journal

ROOT = Path(__file__).parents[3]
CORPUS = "tests.integration.faults.corpus"


@contextmanager
def compiling(fault: Fault, *, faulty: bool) -> Iterator[None]:
    """With an empty cache."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with ExitStack() as stack:
        stack.callback(torch._dynamo.reset)
        stack.enter_context(fresh_cache())
        stack.enter_context(torch._inductor.config.patch({"cpp.simdlen": 1} | fault.config))
        stack.enter_context(fault.plant() if faulty else nullcontext())
        yield


def record(fault: Fault, path: Path) -> kernelscope.ShadowResult:
    with kernelscope.record(values="save", stages=True, path=path), kernelscope.shadow() as result:
        fault.program()
    return result


def script_of(path: Path, result: kernelscope.ShadowResult) -> Script:
    run, culprit = kernelscope.load(path), result.culprit
    assert culprit is not None
    if culprit.verdict in ("wrong-stage", "wrong-result"):
        return graph_script(run, run.graphs[0].name)
    file, _, line = culprit.wrapper.rpartition(":")
    call = run.calls[culprit.index]
    assert (Path(call.wrapper_line[0]), call.wrapper_line[1]) == (Path(file), int(line))
    imports = [CORPUS] if "kernelscope_faults" in call.kernel_name else []
    return call_script(run, call.index, imports)


def same_script(path: Path, other: Script) -> Script:
    """Of a run without the fault: the same call, or graph."""
    run = kernelscope.load(path)
    if other.name.startswith("repro_call"):
        return call_script(run, int(other.name.rpartition("_")[2]))
    return graph_script(run, run.graphs[0].name)


def reduced(fault: Fault) -> Script:
    def program() -> None:
        with fault.plant():
            fault.program()

    def check(candidate: Candidate) -> FailureSignature | None:
        with fault.plant():  # it plants one kernel each time
            return shadow_check(candidate)

    with compiling(fault, faulty=False):
        captured = capture(program)
        assert captured.failure is not None
        found = reduce_captured(captured, CandidateTrials(check, Journal()))
        script = reduced_script(found)
    assert found.nodes <= 3, found
    assert captured.failure.is_same(found.failure), "another failure"
    assert found.failure.what == fault.verdict
    return script


def status_here(path: Path, fault: Fault, *, faulty: bool) -> int:
    """In this process, because the fault is planted in this process."""
    with compiling(fault, faulty=faulty), pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    return int(left.value.code)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_from_the_fault_to_its_scripts(fault: Fault, tmp_path: Path, only_torch: OnlyTorch) -> None:
    with compiling(fault, faulty=True):
        wrong = record(fault, tmp_path / "wrong")
    script = script_of(tmp_path / "wrong.kscope", wrong)
    assert "import kernelscope" not in script.text
    # An operator of the corpus itself is needed, and is wrong wherever it runs.
    needs_corpus = f"import {CORPUS}" in script.text
    paths = [ROOT, ROOT / "src", Path(pytest.__file__).parents[2]] if needs_corpus else []
    running = only_torch.start(files.write(script, tmp_path / "a"), paths=paths)
    clean = None
    if not needs_corpus:
        saved = kernelscope.record(values="save", stages=True, path=tmp_path / "right")
        with compiling(fault, faulty=False), saved:
            fault.program()
        right = same_script(tmp_path / "right.kscope", script)
        clean = only_torch.start(files.write(right, tmp_path / "b"))
    smallest = reduced(fault)
    status, said = only_torch.wait(running)
    assert status == 1, said
    assert "FAIL " in said
    if clean is not None:
        status, said = only_torch.wait(clean)
        assert status == 0, said
    if "kernelscope_faults" not in smallest.text:  # needs an operator of the program's, and says so
        path = files.write(smallest, tmp_path / "c")
        assert status_here(path, fault, faulty=True) == 1
        assert status_here(path, fault, faulty=False) == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_bisect_ends_at_its_cause(fault: Fault) -> None:
    """On the finest axis that can express it; what works around it is in test_bisect_faults."""
    canaries = Canaries()
    result = kernelscope.bisect(planted(fault, canaries), compile=False, workaround=False, runs=2)
    canary = canaries.first
    canary.assert_planted()
    assert_found(fault, result, canary)
