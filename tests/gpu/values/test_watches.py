"""Watches on a real GPU: exact counts, the first producer of a NaN, no waiting, CUDA graphs."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from tests.gpu.recording.test_recording import SYNCHRONISING
from tests.gpu.values.programs import child, training_step
from torch.profiler import ProfilerActivity, profile

import kernelscope
from kernelscope.fingerprint.cuda import nan_scan as scan
from kernelscope.values import WatchHit, watch


def planted(dtype: torch.dtype, numel: int) -> torch.Tensor:
    torch.manual_seed(numel)
    values = torch.randn(numel, device="cuda") * 3
    for place, value in enumerate((math.nan, math.inf, -math.inf, math.nan, 448.0, -0.0)):
        values[(place * 7919 + numel - 1) % numel] = value
    return values.to(dtype)


def counted(tensor: torch.Tensor) -> list[int]:
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    parts = torch.view_as_real(wide) if wide.is_complex() else wide
    return [int(f(parts).sum()) for f in (torch.isnan, torch.isposinf, torch.isneginf)]


@pytest.mark.parametrize("dtype", [*scan.KINDS, torch.complex64], ids=str)
@pytest.mark.parametrize("numel", [1, 7, 1000, 1_000_003])
def test_counts_are_exact(dtype: torch.dtype, numel: int) -> None:
    tensor = planted(dtype, numel)
    on = scan.DeviceScan(tensor.device, scan.NAN)
    tensors = [torch.ones(5, device="cuda"), tensor, torch.ones(3, device="cuda", dtype=torch.float64)]
    if numel > 7:
        tensors += [tensor[1:], tensor[::3]]
    first = on.reserve(len(tensors))
    on.enqueue(first, tensors)
    rows = on.read()
    assert [rows[first + i] for i in range(len(tensors))] == [counted(t) for t in tensors]
    assert on.is_raised == any(counted(t)[0] for t in tensors)
    on.clear()
    assert not on.is_raised
    on.enqueue(first, [torch.full((1 << 20,), -math.inf, device="cuda")])
    assert on.read()[first] == [0, 0, 1 << 20]
    assert not on.is_raised  # a mask is none


def body(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x @ w - 3).relu() @ w
    z = torch.log(y - 1) @ w
    return z.relu() @ w


def test_the_first_producer_is_named() -> None:
    good, bad = torch.full((64, 64), 9.0, device="cuda"), torch.zeros(64, 64, device="cuda")
    w = torch.eye(64, device="cuda")
    compiled = torch.compile(body)

    def function(x: torch.Tensor) -> torch.Tensor:
        return compiled(x, w)

    bare = function(good)
    ran: list[torch.Tensor] = []

    def program() -> None:
        for x in (good, good, bad, *[good] * 50):
            ran.append(function(x))
            torch.cuda.synchronize()  # so that what is found is found in time

    with pytest.raises(WatchHit) as stopped, watch("nan"):
        program()
    hit = stopped.value.hit
    assert len(ran) == 3
    assert torch.equal(ran[1], bare)
    assert fnmatchcase(hit.kernel, "triton_*log*"), hit
    assert "NaN of 4096 elements" in str(hit)
    with kernelscope.record() as run:
        function(good)
    assert hit.call == 2 * len(run) + [call.kernel_name for call in run].index(hit.kernel)
    with pytest.raises(WatchHit) as exact, watch("nan", exact=True):
        function(bad)
    assert exact.value.hit.kernel == hit.kernel
    assert exact.value.hit.is_producer
    assert exact.value.hit.inputs


def test_a_watch_waits_for_nothing_and_changes_nothing() -> None:
    step = training_step()
    bare = step()
    with watch("nan", "inf") as hits:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            with torch.profiler.record_function("watched steps"):
                seen = step()
            torch.cuda.synchronize()
    assert not hits
    assert torch.equal(seen, bare) or torch.allclose(seen, bare, rtol=1e-2)  # atomics in the backward pass
    [span] = [e for e in trace.events() if e.name == "watched steps" and "CPU" in str(e.device_type)]
    inside = [
        e.name
        for e in trace.events()
        if e.name in SYNCHRONISING and span.time_range.start <= e.time_range.start <= span.time_range.end
    ]
    assert inside == []
    scans = [e for e in trace.events() if e.name == "scan" and "CUDA" in str(e.device_type)]
    assert scans, "the planned execution was looked at"


def test_masks_are_no_hits() -> None:
    mask = torch.ones(64, 64, device="cuda").triu(1).bool()

    def attention(q: torch.Tensor) -> torch.Tensor:
        return torch.softmax((q @ q.t()).masked_fill(mask, -math.inf), -1) @ q

    function = torch.compile(attention)
    with watch("nan", "inf") as hits:
        for _ in range(3):
            function(torch.randn(64, 64, device="cuda"))
    assert not hits


def test_a_nan_inside_a_cuda_graph_of_torch_compile() -> None:
    function = torch.compile(lambda x: torch.log(x - 3).relu() * 2, mode="reduce-overhead")
    good, bad = torch.full((64,), 9.0, device="cuda"), torch.zeros(64, device="cuda")
    with watch("nan") as hits:
        for _ in range(5):
            function(good)
    assert not hits

    def program() -> None:
        for x in (*[good] * 5, bad, *[good] * 50):
            function(x)
            torch.cuda.synchronize()

    with pytest.raises(WatchHit) as stopped, watch("nan"):
        program()
    assert fnmatchcase(stopped.value.hit.kernel, "triton_*log*")


def test_a_nan_inside_a_users_cuda_graph() -> None:
    x = torch.full((64,), 9.0, device="cuda")
    function = torch.compile(lambda x: torch.log(x - 3))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            function(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()

    def program() -> None:
        with torch.cuda.graph(graph):
            function(x)
        graph.replay()
        torch.cuda.synchronize()
        x.zero_()
        graph.replay()

    with pytest.raises(WatchHit) as stopped, watch("nan"):
        program()
    assert "replayed from a CUDA graph" in str(stopped.value)
    assert "log" in stopped.value.hit.kernel


SCRIPT = """
import sys
import torch

w = torch.eye(64, device="cuda")

@torch.compile
def step(x):
    return torch.log((x @ w).relu() - 1) @ w

for i in range(30):
    step(torch.full((64, 64), 0.0 if i == 7 else 9.0, device="cuda"))
torch.cuda.synchronize()
print("reached the end")
"""


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_script_is_run_again_to_the_hit(tmp_path: Path, mode: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("torch.compile\n", f"torch.compile(mode={mode!r})\n"))
    done = child(tmp_path, "-m", "kernelscope", "run", "--stop-on", "nan", "train.py")
    assert done.returncode == 3, done.stderr
    assert "running again synchronously" in done.stderr
    assert "this call produced it" in done.stderr
    exact = tmp_path / "kscope-runs" / "train-exact-1.kscope"
    run = kernelscope.load(exact)
    [call] = {finding.call for finding in run.findings if finding.kind == "watch"}
    assert {moment for _, moment in run.saved_tensors(call)} == {"before", "after"}
    script = child(tmp_path, "-m", "kernelscope", "repro", str(exact), "--call", str(call), "--run")
    assert script.returncode == 1, script.stdout + script.stderr
    assert "NaN, and no input has any: the kernel makes it" in script.stdout
    assert "generated from its recorded statistics" not in script.stdout
