"""`bisect` and `reduce` on a GPU: in one process, as commands with a process per trial, after a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpu.shadowing.test_shadow import FAULTS, data
from tests.integration.faults.finding import Canaries

import kernelscope

# The second kernel is wrong: Inductor has a setting that plants this fault, for tests.
WRONG = """
import torch, torch._inductor.config as config
config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)

@torch.compile
def f(x):
    return (x @ x).relu() + 1

@torch.compile(mode={mode!r})
def g(x):
    return torch.nn.functional.gelu(x).sum(0){g}

x = torch.randn(64, 64, device="cuda")
for _ in range({steps}):
    g(x)
y = {f}
print("the script ran to its end")
"""

# Fails when it is compiled, and when the kernel is launched.
CALLS = """
import torch, torch._inductor.config as config
config.triton.inject_relu_bug_TESTING_ONLY = {how!r}

@torch.compile
def f(x):
    return (x.sin() @ x).relu() + 1

f(torch.randn(64, 64, device="cuda"))
torch.cuda.synchronize()
"""


def run(folder: Path, command: str, *words: str, status: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope", command, "--json", *words],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def written(folder: Path, text: str) -> None:
    (folder / "program.py").write_text(text)


def wrong(folder: Path, *, mode: str = "default", steps: int = 1, g: str = "", f: str = "f(x)") -> None:
    written(folder, WRONG.format(mode=mode, steps=steps, g=g, f=f))


@pytest.mark.parametrize("name", FAULTS)
def test_in_one_process(name: str) -> None:
    fn, count, plant, _, backward = FAULTS[name]
    args = [data(100, 100), data(100, 100).cos()][:count]
    canaries = Canaries()

    def program() -> None:
        given = [a.clone().requires_grad_(backward) for a in args]
        with plant() as canary:
            made = torch.compile(fn)(*given, *([None] * (2 - len(given))))
            if backward:
                made.square().sum().backward()
            torch.cuda.synchronize()
        if canary.hits:
            canaries.add(canary)

    result = kernelscope.bisect(program, compile=False, workaround=False)
    canary = canaries.first
    canary.assert_planted()
    assert result.cause is not None, str(result)
    assert result.cause.axis == "kernel", str(result)
    (switch,) = result.cause.switches
    if canary.kernels:
        assert switch.info["kernel"] == canary.kernels[0], str(result)
    assert switch.info["phase"] == ("backward" if backward else "forward"), str(result)


def test_a_script_with_a_process_for_each_trial(tmp_path: Path) -> None:
    wrong(tmp_path)
    result = run(tmp_path, "bisect", "program.py")
    assert result["cause"]["axis"] == "kernel", result
    (switch,) = result["cause"]["switches"]
    assert switch["info"]["kernel"] == "triton_poi_fused_add_relu_0", result
    assert switch["info"]["origin"].startswith("program.py:8"), result
    assert result["workaround"] == ["torch._inductor.config.triton.inject_relu_bug_TESTING_ONLY = None"]
    log = Path(result["folder"]) / "logs" / "trial-1.log"
    assert "the script ran to its end" in log.read_text()


def test_inside_cuda_graphs(tmp_path: Path) -> None:
    """They are run launch by launch, so that a kernel in one can be replaced."""
    wrong(tmp_path, mode="reduce-overhead", steps=3, g=" + x.relu()", f="g(x)")
    result = run(tmp_path, "bisect", "program.py")
    line = "torch._inductor.config.triton.inject_relu_bug_TESTING_ONLY = None"
    assert result["workaround"] == [line], result
    assert result["cause"]["axis"] == "kernel", result
    (switch,) = result["cause"]["switches"]
    assert "relu" in switch["info"]["kernel"], result


@pytest.mark.parametrize("how", ["compile_error", "runtime_error"])
def test_an_exception(tmp_path: Path, how: str) -> None:
    """A kernel that cannot be built, and one that ends in a fault after which its process has no GPU."""
    written(tmp_path, CALLS.format(how=how))
    result = run(tmp_path, "bisect", "--no-workaround", "--fails-on", "exception", "program.py")
    (switch,) = result["cause"]["switches"]
    assert "relu" in json.dumps(switch), result


def test_a_lost_gpu_in_one_process(tmp_path: Path) -> None:
    """It is said, and what to do; in a process of its own, because nothing works after it."""
    written(
        tmp_path,
        """
import torch, torch._inductor.config as config, kernelscope
config.triton.inject_relu_bug_TESTING_ONLY = "runtime_error"
kernelscope.bisect(lambda x: x.relu() + 1, (torch.randn(64, device="cuda"),), fails="exception")
""",
    )
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "a GPU fault made the device unusable in this process" in last, done.stderr
    assert "kernelscope bisect --fails-on exception script.py" in last


def test_the_first_nan(tmp_path: Path) -> None:
    written(
        tmp_path,
        """
import torch

@torch.compile
def f(x):
    return ((x @ x).abs() - 1e9).log() + 1

f(torch.ones(64, 64, device="cuda"))
""",
    )
    result = run(tmp_path, "bisect", "--fails-on", "nan", "program.py", status=2)
    assert "eager" in result["problem"], result  # eager's logarithm is no better


def test_reduce(tmp_path: Path) -> None:
    written(
        tmp_path,
        """
import torch, torch._inductor.config as config
config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)

@torch.compile
def f(x):
    y = (x.sin() @ x.cos()).softmax(1)
    z = (y * 2 + x).tanh().relu()
    return (z @ y).sum(0)

f(torch.randn(64, 64, device="cuda"))
""",
    )
    found = run(tmp_path, "reduce", "program.py")
    assert found["nodes"] <= 3, found
    script = tmp_path / found["script"]
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_graph_that_loses_the_gpu_is_not_reduced(tmp_path: Path) -> None:
    written(tmp_path, CALLS.format(how="runtime_error"))
    found = run(tmp_path, "reduce", "program.py", status=2)
    assert "the program causes a GPU fault" in found["problem"], found
    assert "kernelscope bisect --fails-on exception" in found["problem"], found
