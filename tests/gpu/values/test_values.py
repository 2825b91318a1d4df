"""Values on a real GPU: the four levels, a watch that never waits, CUDA graphs, C++ wrappers."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor
from tests.gpu.models import Block
from tests.gpu.recording.test_recording import SYNCHRONISING
from torch.profiler import ProfilerActivity, profile

import kernelscope
from kernelscope.config import FILTERED, PRINTER
from kernelscope.fingerprint.cuda import nan_scan as scan
from kernelscope.values import WatchHit, observe, watch

SRC = Path(__file__).parents[3] / "src"


@pytest.fixture(autouse=True)
def anew() -> None:
    torch._dynamo.reset()


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


def training_step(dtype: torch.dtype = torch.bfloat16) -> Callable[[], torch.Tensor]:
    torch.manual_seed(0)
    model = Block().cuda().to(dtype)
    x = torch.randn(2, 16, 64, device="cuda", dtype=dtype)
    compiled = torch.compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        out = compiled(x)
        out.float().square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    return step


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


def test_values_of_replays_are_said_to_be_missed(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(8, device="cuda")
    function = torch.compile(lambda x: (x + 1) * 2)
    function(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with observe("3", stream=io.StringIO()):
        with torch.cuda.graph(graph):
            function(x)
        graph.replay()
    assert "that the program captured itself are not printed" in capsys.readouterr().err


def test_graphs_of_torch_compile_are_run_launch_by_launch_where_values_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    function = torch.compile(lambda x: torch.log(x - 3) * 2, mode="reduce-overhead")
    good, bad = torch.full((64,), 9.0, device="cuda"), torch.zeros(64, device="cuda")
    for _ in range(4):
        expected = function(good).clone()
    printed = io.StringIO()
    with observe("2", stream=printed):  # captured before, and not replayed now
        for _ in range(3):
            assert torch.equal(function(good), expected)
    assert printed.getvalue().count("after_launch - triton_") == 2 * 3
    assert "captured itself" not in capsys.readouterr().err

    def program() -> None:
        for x in (*[good] * 5, bad, *[good] * 5):
            function(x)

    with pytest.raises(WatchHit) as stopped, watch("nan", exact=True, folder=tmp_path):
        program()
    assert "this call produced it" in str(stopped.value)
    saved = [torch.load(path, weights_only=True) for path in tmp_path.rglob("before_launch_*.pt")]
    assert any(torch.equal(tensor.cuda(), bad) for tensor in saved), list(tmp_path.rglob("*"))
    for _ in range(4):  # captured or replayed again
        assert torch.equal(function(good), expected)


def test_every_tensor_is_printed_and_saved(tmp_path: Path) -> None:
    step, stream = training_step(), io.StringIO()
    step()
    with observe("2", stream=stream) as run:
        step()
    printed = stream.getvalue()
    for call in run:
        for arg in call.arguments:
            if arg.tensor is not None:
                assert f"after_launch - {call.kernel_name} - " in printed
    assert {call.kind for call in run} == {"triton", "extern"}
    with observe("1", folder=tmp_path / "v", kernels="*addmm*,*mm*"):
        step()
    names = [path.name for path in (tmp_path / "v").rglob("*.pt")]
    assert any(fnmatchcase(name, "before_launch_extern_kernels.*mm_*_cuda:0.pt") for name in names)
    for path in (tmp_path / "v").rglob("*.pt"):
        torch.load(path, weights_only=True)


def test_user_triton_kernels() -> None:
    from tests.programs import triton_kernels as kernels

    x = torch.tensor([1.0, math.inf], device="cuda")
    with pytest.raises(WatchHit) as stopped, watch("nan"):
        kernels.add(x, -x)
    assert stopped.value.hit.kernel == "add_kernel"


def test_combo_kernels() -> None:
    """One launch that does the work of several."""
    stream, x, y = io.StringIO(), torch.arange(64.0, device="cuda"), torch.arange(32.0, device="cuda")
    with inductor.patch(combo_kernels=True, benchmark_combo_kernel=False):
        function = torch.compile(lambda x, y: (x * 3, y + 5))
        with observe("2", stream=stream, most_shown=64) as run:
            first, second = function(x, y)
    [call] = run.calls
    assert call.graph.source.count("tl.store(") >= 2
    text = stream.getvalue()
    assert f"(out)\n{first}\n" in text
    assert f"(out)\n{second}\n" in text
    with inductor.patch(combo_kernels=True), pytest.raises(WatchHit) as stopped, watch("nan"):
        torch.compile(lambda x, y: ((x - 1).log(), y + 5))(x, y)
    assert stopped.value.hit.arg.startswith("out_ptr")


def test_replacing_by_eagers_result() -> None:
    w = torch.eye(64, device="cuda")
    function = torch.compile(lambda x: (x @ w).sin() + 1)
    x = torch.randn(64, 64, device="cuda")
    with kernelscope.replace("triton_*sin*", "eager") as replacer:
        found = function(x)
    assert replacer.replaced == 1
    torch.testing.assert_close(found, (x @ w).sin() + 1)
    with kernelscope.replace("triton_*sin*", lambda args: torch.zeros(64, 64, device="cuda")):
        assert not function(x).any()


MODEL = """
import sys
import torch
import torch._inductor
import kernelscope

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
x = torch.randn(3, 4, device="cuda")
exported = torch.export.export(model, (x,))
path = kernelscope.aoti_compile_and_package(exported, package_path="model.pt2")
packaged = torch._inductor.aoti_load_package(path)
with torch.no_grad():
    torch.testing.assert_close(packaged(x), model(x))
print("reached the end")
"""


def child(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELSCOPE")}
    environment |= {"PYTHONPATH": str(SRC), **variables}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.fixture(scope="module")
def packages_load(tmp_path_factory: pytest.TempPathFactory) -> None:
    """torch alone: on some machines loading any package of AOTInductor ends with a segmentation fault."""
    folder = tmp_path_factory.mktemp("without_kernelscope")
    stock = MODEL.replace("import kernelscope\n", "").replace("kernelscope.aoti", "torch._inductor.aoti")
    (folder / "script.py").write_text(stock)
    if (done := child(folder, "script.py")).returncode:
        pytest.skip(f"torch alone cannot load a package here: exit status {done.returncode}")


@pytest.mark.usefixtures("packages_load")
def test_an_aoti_package_prints_as_seed_004_says(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MODEL)
    done = child(tmp_path, "script.py", **{PRINTER: "2"})
    assert done.returncode == 0, done.stderr
    assert "reached the end" in done.stdout
    titles = [line for line in done.stdout.splitlines() if line.startswith("inductor: ")]
    kernels = {title.split(" - ")[1] for title in titles}
    assert any(kernel.startswith("triton_") for kernel in kernels), kernels
    assert any(kernel.startswith("aoti_torch_cuda_addmm_out") for kernel in kernels), kernels
    only = child(tmp_path, "script.py", **{PRINTER: "2", FILTERED: "aoti_torch_cuda_addmm_out"})
    assert only.returncode == 0, only.stderr
    titles = [line for line in only.stdout.splitlines() if line.startswith("inductor: ")]
    assert {title.split(" - ")[1] for title in titles} == {"aoti_torch_cuda_addmm_out"}


@pytest.mark.usefixtures("packages_load")
def test_an_aoti_package_saves_as_seed_004_says(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MODEL)
    done = child(tmp_path, "script.py", **{PRINTER: "1"})
    assert done.returncode == 0, done.stderr
    files = list(tmp_path.rglob("before_launch_aoti_torch_cuda_addmm_out_*_cuda:0.pt"))
    assert files
    assert all(isinstance(torch.load(file, weights_only=True), torch.Tensor) for file in files)


def test_cpp_wrapper_on_a_gpu_tells_its_launches() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
    x = torch.randn(3, 4, device="cuda")
    expected = [t.clone() for t in torch.autograd.grad(model(x).sum(), list(model.parameters()))]
    with inductor.patch(cpp_wrapper=True), kernelscope.record(values="hash") as run:
        compiled = torch.compile(model)
        found = torch.autograd.grad(compiled(x).sum(), list(model.parameters()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert {call.kind for call in run} == {"triton", "extern"}
    assert {call.phase for call in run} == {"forward", "backward"}
    assert all(call.post_hashes for call in run)
    assert not [finding for finding in run.findings if finding.kind != "undeclared-write"]


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
