"""`kernelscope repro` and `reduce` on a GPU: Triton kernels with their autotuned configs, extern kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.repro import files
from kernelscope.repro.one_call import call_script
from kernelscope.repro.one_graph import graph_script


def run_script(path: Path, *words: str) -> tuple[int, str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(path), *words], env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.layer_norm(x @ w, (w.shape[1],)).relu()
    return (y * 2 + 1).softmax(-1).sum(0)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w = torch.randn(64, 128, device="cuda"), torch.randn(128, 256, device="cuda", requires_grad=True)
    with kernelscope.record(values="save", stages=True, fresh=True, path=tmp_path / "r"):
        torch.compile(program)(x, w).square().sum().backward()
    return tmp_path / "r.kscope"


def test_every_call_of_a_step(recorded: Path, tmp_path: Path) -> None:
    run = kernelscope.load(recorded)
    assert {"triton", "extern"} <= {call.kind for call in run.calls}
    for call in run.calls:
        status, said = run_script(files.write(call_script(run, call.index), tmp_path / "out"))
        assert status == 0, f"{call.kernel_name}\n{said}"
        assert "recorded config" not in said


def test_a_wrong_kernel_fails(recorded: Path, tmp_path: Path) -> None:
    run = kernelscope.load(recorded)
    call = next(c for c in run.calls if c.kind == "triton" and "relu" in c.kernel_name)
    script = call_script(run, call.index)
    changed = script.text.replace("triton_helpers.maximum(", "triton_helpers.minimum(", 1)
    assert changed != script.text
    script.text = changed
    status, said = run_script(files.write(script, tmp_path / "out"))
    assert status == 1, said
    assert "FAIL" in said


def test_a_graph_and_times(recorded: Path, tmp_path: Path) -> None:
    run = kernelscope.load(recorded)
    for graph in run.graphs:
        path = files.write(graph_script(run, graph.name), tmp_path / "out")
        status, said = run_script(path)
        assert status == 0, said
    status, said = run_script(path, "--benchmark")
    assert status == 0, said
    assert "eager" in said


def test_reduce_on_a_gpu() -> None:
    import torch._inductor.config

    x = torch.randn(32, 64, device="cuda")
    with torch._inductor.config.patch({"triton.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        found = kernelscope.reduce(lambda: torch.compile(lambda x: ((x.sin() + 1).relu() * 2).sum(1))(x))
    assert found.nodes <= 2, found
    assert "relu" in found.candidate.code
    assert found.failure.what == "wrong-kernel"
