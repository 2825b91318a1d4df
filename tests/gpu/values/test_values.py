"""Values on a real GPU, printed and saved: the four levels, CUDA graphs, C++ wrappers, packages."""

from __future__ import annotations

import io
import math
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor
from tests.gpu.values.programs import child, training_step

import kernelscope
from kernelscope.config import FILTERED, PRINTER
from kernelscope.values import WatchHit, observe, watch


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
