"""`diff` on runs of real programs: forward and backward, other fusion and settings, dropout, eager code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor

import kernelscope
from kernelscope import Divergence, Run

ROOT = Path(__file__).parents[3]


def recorded(fn: Callable[..., Any], *args: Any, seed: int = 0, **settings: Any) -> Run:
    torch.manual_seed(seed)
    with kernelscope.record(values="hash", **settings) as run:
        fn(*args)
    return run


@pytest.fixture(scope="module")
def training() -> Callable[[torch.Tensor], None]:
    torch._dynamo.reset()
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)
    )
    compiled = torch.compile(model)

    def step(x: torch.Tensor) -> None:
        model.zero_grad()
        compiled(x).square().sum().backward()

    step(torch.ones(4, 16))
    return step


def test_equal_programs_agree(training: Callable[[torch.Tensor], None]) -> None:
    x = torch.randn(4, 16)
    found = kernelscope.diff(recorded(training, x), recorded(training, x))
    assert not found, str(found)


def test_another_seed_is_an_input(training: Callable[[torch.Tensor], None]) -> None:
    x = torch.randn(4, 16)
    found = kernelscope.diff(recorded(training, x), recorded(training, x, seed=1))
    assert found.verdict == "inputs-differ"
    assert found.source is not None
    assert found.source.kind == "generator"


def test_another_batch_is_a_graph_input_and_spreads_to_the_backward(
    training: Callable[[torch.Tensor], None],
) -> None:
    a, b = recorded(training, torch.ones(4, 16)), recorded(training, torch.full((4, 16), 2.0))
    found = kernelscope.diff(a, b)
    assert found.verdict == "inputs-differ"
    assert found.source is not None
    assert found.source.kind == "graph-input"
    assert found.phase == "forward"
    assert found.spread.last is not None
    assert a.calls[found.spread.last].phase == "backward"


def body(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    z = (y * 3).relu()
    return (z @ w).cos()


def test_another_fusion_with_the_same_values() -> None:
    args = torch.randn(8, 8), torch.randn(8, 8)
    torch._dynamo.reset()
    fused = recorded(torch.compile(body), *args)
    torch._dynamo.reset()
    with inductor.patch(max_fusion_size=1, realize_opcount_threshold=0, realize_reads_threshold=0):
        apart = recorded(torch.compile(body), *args)
    torch._dynamo.reset()
    eager = recorded(body, *args, ops="all")
    for other in (apart, eager):
        found = kernelscope.diff(fused, other)
        if len(other) != len(fused):
            assert found.verdict == "different-kernel"
            assert found.origin is not None
            assert found.origin.file == __file__
    assert len(eager) > len(fused)


def test_a_wrong_kernel_in_one_run_is_named() -> None:
    """A relu that is off by a little in one run: other code, other values."""
    args = torch.randn(8, 8), torch.randn(8, 8)
    torch._dynamo.reset()
    good = recorded(torch.compile(body), *args)
    torch._dynamo.reset()
    with inductor.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        bad = recorded(torch.compile(body), *args)
    torch._dynamo.reset()
    assert [k.source for k in good.kernels] != [k.source for k in bad.kernels]
    found = kernelscope.diff(good, bad)
    assert (found.verdict, found.index) == ("different-kernel", 0)
    assert "relu" in found.kernel_name
    assert found.argument is not None
    assert found.spread.differing == len(good) - 1


def test_switches_are_settings() -> None:
    """The same code with another number of threads: not the kernel's fault if it adds up in another order."""
    x = torch.randn(300_000)
    threads = torch.get_num_threads()
    runs = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            runs.append(recorded(lambda x: torch.sum(x.cumsum(0)), x, ops="all"))
    finally:
        torch.set_num_threads(threads)
    [marks_a, marks_b] = [[json.loads(m.text) for m in run.marks if m.kind == "switches"] for run in runs]
    assert (marks_a[-1]["threads"], marks_b[-1]["threads"]) == (1, 2)
    found = kernelscope.diff(*runs)
    assert isinstance(found, Divergence)
    if found:  # whether it adds up in another order is the library's business
        assert found.verdict == "different-config"
        assert "threads" in found.reason


# -- the commands ----------------------------------------------------------------------------------------


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "2"}
    return subprocess.run(
        [sys.executable, "-m", "kernelscope", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)  # a dozen processes, each of which compiles
def test_determinism_of_a_script(tmp_path: Path) -> None:
    script = str(ROOT / "tests" / "programs" / "repeated.py")
    clean = command(tmp_path, "determinism", "--json", script, "seeded")
    assert clean.returncode == 0, clean.stderr
    assert json.loads(clean.stdout)["divergence"] is None
    racing = command(tmp_path, "determinism", "--json", "--fresh", "--runs", "4", script, "seeded", "racing")
    assert racing.returncode == 1, racing.stderr
    [kernel] = json.loads(racing.stdout)["kernels"]
    assert "index_add" in kernel["kernel_name"]
    assert kernel["confirmed"]
    anew = command(tmp_path, "determinism", "--recompile", "--runs", "2", script, "unseeded")
    assert anew.returncode == 1, anew.stderr
    assert "no kernel is at fault" in anew.stdout
    failed = command(tmp_path, "determinism", script, "fail")
    assert failed.returncode == 2
    assert "ended with status 3" in failed.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)  # a dozen processes, each of which compiles
def test_saving_what_differs(tmp_path: Path) -> None:
    script = str(ROOT / "tests" / "programs" / "repeated.py")
    for name in ("a", "b"):
        ran = command(tmp_path, "run", "--values", "hash", "--ops", "all", "-o", name, script, "unseeded")
        assert ran.returncode == 0, ran.stderr
    found = command(tmp_path, "diff", "a", "b", "--save", "--json")
    assert found.returncode == 1, found.stderr
    told = json.loads(found.stdout)
    assert told["divergence"]["kernel_name"] == "aten.randn.default"
    assert told["divergence"]["max_abs"] > 0
    [errors] = told["divergence"]["errors"]
    assert errors["elements"] == 400_000
    assert sum(bar["elements"] for bar in errors["histogram"]) == 400_000


def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = ((x @ w).sin() * 2).softmax(-1).cos() + 1  # kernels of all layers come from this one line
    return torch.relu(x.sum(0) * 3) * 5


def test_kernels_that_compute_the_same_nodes_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.choices import InductorChoices
    from torch._inductor.codegen.cpp import CppScheduling

    from kernelscope.analysis.alignment.align_calls import align

    args = torch.randn(8, 8), torch.randn(8, 8)
    wrong = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
    runs = []
    for fuses, settings in ((True, {}), (False, {}), (False, wrong)):
        torch._dynamo.reset()
        if not fuses:
            monkeypatch.setattr(InductorChoices, "can_fuse", staticmethod(lambda *args: False))
            monkeypatch.setattr(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", 0)  # a kernel for each loop
        with inductor.patch(settings):
            runs.append(recorded(torch.compile(layers), *args, stages=True, fresh=True))
    torch._dynamo.reset()
    fused, unfused, bad = runs
    assert len(unfused) > len(fused)
    gaps = align(fused, unfused).gaps
    assert len(gaps) >= 3
    for gap in gaps:
        assert nodes_in(fused, gap.a) == nodes_in(unfused, gap.b), gap
    found = kernelscope.diff(fused, unfused)
    assert found.verdict == "different-kernel"
    assert "all values that can be compared agree" in found.notes
    found = kernelscope.diff(fused, bad)
    assert found.verdict == "different-kernel"
    assert found.index_a == len(fused) - 1
    assert "relu" in found.kernel_name


def nodes_in(run: Run, calls: range) -> set[str]:
    found = [run.calls[i].provenance for i in calls]
    return {node.name for provenance in found if provenance is not None for node in provenance.nodes}
