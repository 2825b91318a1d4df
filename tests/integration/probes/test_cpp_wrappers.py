"""Values where no Python runs between kernels: packages of AOTInductor, and `cpp_wrapper`."""

from __future__ import annotations

import gc
import io
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor
import torch._inductor.config as inductor

import kernelscope
from kernelscope.config import FILTERED, PRINTER
from kernelscope.fingerprint import fingerprint
from kernelscope.probes.bus import BUS
from kernelscope.probes.cpp_wrappers.cpp_text import input_names
from kernelscope.probes.cpp_wrappers.launch_log import _loaded_libraries
from kernelscope.store.stored_run import load
from kernelscope.values import WatchHit, observe, watch

SRC = Path(__file__).parents[3] / "src"


@torch.library.custom_op("kernelscope_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("kernelscope_tests::pair", mutates_args=())
def pair(xs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return xs[0] + xs[1], xs[0] - xs[1]


@pair.register_fake
def _(xs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(xs[0]), torch.empty_like(xs[0])


@torch.library.custom_op("kernelscope_tests::raise_by", mutates_args=("x",))
def raise_by(x: torch.Tensor, amount: float) -> None:
    x.add_(amount)


class Model(torch.nn.Module):
    """A C++ kernel, extern kernels, one with two results, and a custom operator."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.second(torch.relu(self.first(x)))
        values, places = torch.topk(y, 2)
        return torch.log(y), values, places, twice(y)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("package")
    exported = torch.export.export(Model(), (torch.ones(5, 4),))
    path = kernelscope.aoti_compile_and_package(exported, package_path=str(folder / "model.pt2"))
    return Path(path)


@pytest.fixture(scope="module")
def model(package: Path) -> Any:
    return torch._inductor.aoti_load_package(str(package))


X = torch.ones(5, 4)  # for which all is well: no logarithm of a negative number


def test_a_recorded_package(model: Any, tmp_path: Path) -> None:
    bare = model(X)
    with kernelscope.record(values="hash") as run:
        first = model(X)
        model(X)
    with kernelscope.record() as plain:
        model(X)
    after = model(X)
    for one, two, three in zip(bare, first, after, strict=True):
        assert (
            torch.equal(
                one,
                two,
            )
            or one.isnan().any()
        )
        assert torch.equal(one.nan_to_num(7), three.nan_to_num(7))
        assert torch.equal(one.nan_to_num(7), two.nan_to_num(7))
    assert not run.findings
    calls = run.calls[: len(run) // 2]
    assert [call.kernel_name for call in run.calls[len(calls) :]] == [call.kernel_name for call in calls]
    assert [call.post_hashes for call in run.calls[len(calls) :]] == [call.post_hashes for call in calls]
    assert {call.kind for call in calls} == {"cpp", "extern"}
    names = [call.kernel_name for call in calls]
    assert names.count("aoti_torch_cpu_addmm_out") == 2
    assert "aoti_torch_cpu_topk" in names
    assert "kernelscope_tests.twice.default" in names
    [custom] = [call for call in calls if "twice" in call.kernel_name]
    assert [arg.role for arg in custom.arguments if arg.tensor is not None] == ["in", "out"]
    addmm = calls[names.index("aoti_torch_cpu_addmm_out")]
    assert {"out", "self", "mat1", "mat2"} <= set(addmm.arg_names)
    assert dict(zip(addmm.arg_names, addmm.roles, strict=True))["out"] == "out"
    assert addmm.uninitialised  # its output, before
    # What one kernel leaves is what the next finds: nothing was written in between.
    outputs = {call.post_hashes[i] for call in calls for i in call.modified_args or ()}
    assert outputs
    assert [call.kernel_name for call in plain] == names
    assert [call.arguments[0].tensor for call in plain] == [call.arguments[0].tensor for call in calls]


def test_the_levels_on_a_package(model: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with observe("2", stream=stream) as run:
        result = model(X)
    text = stream.getvalue()
    for call in run:
        for arg in call.arguments:
            if arg.tensor is not None and arg.wrapper_name.isidentifier():
                for moment in ("before", "after"):
                    assert f"inductor: {moment}_launch - {call.kernel_name} - {arg.wrapper_name}\n" in text
    assert f"aoti_model_inputs - arg4_1\n{X}\n" in text
    assert str(result[1]) in text
    assert "Values:  uninitialised memory" in text
    capfd.readouterr()
    with observe("3"):
        model(X)
    out = capfd.readouterr().out.splitlines()
    expected = [f"[ {m}_launch: {call.kernel_name} ]" for call in run for m in ("before", "after")]
    assert out == expected
    with observe("1", folder=tmp_path / "v"):
        model(X)
    folder = tmp_path / "v" / str([call.kernel_name for call in run].index("aoti_torch_cpu_topk"))
    saved = [torch.load(file, weights_only=True) for file in folder.glob("after_launch_*")]
    assert any(torch.equal(one, result[1]) for one in saved)
    assert any(torch.equal(one, result[2]) for one in saved)
    assert list((tmp_path / "v").glob("graph_*/aoti_model_inputs_arg4_1_cpu.pt"))
    assert list((tmp_path / "v").glob("*/after_launch_aoti_torch_cpu_addmm_out_buf1_cpu.pt"))
    assert not list((tmp_path / "v").glob("*/before_launch_aoti_torch_cpu_addmm_out_buf1_cpu.pt"))


@pytest.mark.parametrize("glob", ["AOTI_torch_cpu_addmm_OUT", "addmm", "extern_kernels.addmm"])
def test_filters_on_a_package(model: Any, glob: str) -> None:
    stream = io.StringIO()
    with observe("2", stream=stream, kernels=glob):
        model(X)
    titles = [line for line in stream.getvalue().splitlines() if line.startswith("inductor: ")]
    assert {title.split(" - ")[1] for title in titles} == {"aoti_torch_cpu_addmm_out"}


def test_the_producer_of_a_nan_in_a_package(model: Any, tmp_path: Path) -> None:
    bad = -100 * torch.ones(5, 4)
    assert any(model(x)[0].isnan().any() for x in (bad, -bad))
    x = bad if model(bad)[0].isnan().any() else -bad
    with pytest.raises(WatchHit) as stopped, watch("nan", folder=tmp_path / "v"):
        model(x)
    hit = stopped.value.hit
    assert hit.kind == "cpp"
    assert "log" in hit.kernel
    assert hit.is_producer
    assert not any(tensor.isnan().any() for tensor in hit.inputs.values())
    assert hit.files


def test_a_package_recorded_to_disk_shows_and_differs(model: Any, tmp_path: Path) -> None:
    for name, x in (("a", X), ("b", X * 2), ("c", X)):
        with kernelscope.record(values="save", path=tmp_path / name):
            model(x)
    first, second = load(tmp_path / "a.kscope"), load(tmp_path / "b.kscope")
    names = [call.kernel_name for call in first]
    where = names.index("aoti_torch_cpu_topk")
    values = first.calls[where].value("ret0")
    assert math.isclose(float(values[0][0]), float(model(X)[1][0][0]))
    divergence = kernelscope.diff(first, second)
    assert divergence
    assert "addmm" in str(divergence)
    assert not kernelscope.diff(first, load(tmp_path / "c.kscope"))


def test_what_runs_unheard_is_no_part_of_the_next_call(model: Any) -> None:
    with kernelscope.record(values="hash") as run:
        model(X)
        calls = len(run)
        with BUS.mute():
            model.loader.boxed_run([X])
        model(X)
    assert len(run) == 2 * calls


def test_a_packages_loader_is_heard_without_its_callable(model: Any) -> None:
    with kernelscope.record(values="hash") as run:
        model(X)
        calls = len(run)
        model.loader.boxed_run([X])
    assert len(run) == 2 * calls
    first, second = run.calls[:calls], run.calls[calls:]
    assert [c.kernel_name for c in first] == [c.kernel_name for c in second]
    assert [c.post_hashes for c in first] == [c.post_hashes for c in second]


def test_a_package_loaded_again(package: Path) -> None:
    for _ in range(3):
        again = torch._inductor.aoti_load_package(str(package))
        with kernelscope.record() as run:
            again(X)
        assert len(run) > 5
        assert not run.findings
        del again
        gc.collect()
        assert not [path for path in _loaded_libraries() if "aoti" in path[0] and not Path(path[0]).exists()]


class Odd(torch.nn.Module):
    """Keywords, state that changes, an input that is written to, operators that write, any batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, *, scale: torch.Tensor, bias: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        self.count.add_(1)
        y.mul_(2)
        total, rest = pair([x @ x.t(), x @ y.t()])
        raise_by(rest, 2.0)
        wide = torch.bmm(x.expand(2, -1, -1), torch.ones(2, 4, 4))
        return {"a": total * scale.sum() - bias.sum(), "b": rest, "c": y + 1, "d": wide, "e": self.count * 3}


def test_an_odd_package(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    x, y, scale, bias = torch.randn(5, 4), torch.randn(5, 4), torch.ones(4), torch.zeros(4)
    shapes = {"x": {0: batch}, "y": {0: batch}, "scale": None, "bias": None}
    exported = torch.export.export(Odd(), (x, y), {"scale": scale, "bias": bias}, dynamic_shapes=shapes)
    path = kernelscope.aoti_compile_and_package(exported, package_path=str(tmp_path / "first.pt2"))
    moved = Path(path).rename(tmp_path / "moved.pt2")
    model, eager, stream = torch._inductor.aoti_load_package(str(moved)), Odd(), io.StringIO()
    for size in (5, 9):
        x, y = torch.randn(size, 4), torch.randn(size, 4)
        ours, theirs = y.clone(), y.clone()
        with observe("2", stream=stream) as run:
            made = model(x, ours, bias=bias, scale=scale)  # not in the order of its signature
        expected = eager(x, theirs, scale=scale, bias=bias)
        assert all(torch.allclose(made[name], expected[name], atol=1e-5) for name in expected)
        assert torch.equal(ours, theirs)
        assert not run.findings
    text = stream.getvalue()
    names = input_names(run.graphs[0].source)
    assert f"aoti_model_inputs - {names[-2]}\n{scale}\n" in text
    assert f"aoti_model_inputs - {names[-1]}\n{bias}\n" in text
    pairs, raised = (next(call for call in run if name in call.kernel_name) for name in ("pair", "raise_by"))
    assert dict(zip(pairs.arg_names, pairs.roles, strict=True)) == {
        "xs[0]": "in", "xs[1]": "in", "result0": "out", "result1": "out"
    }  # fmt: skip
    assert dict(zip(raised.arg_names, raised.roles, strict=True)) == {"x": "inout"}
    assert raised.modified_args
    assert raised.pre_stats[0].mean + 2 == pytest.approx(raised.post_stats[0].mean, abs=1e-5)


@pytest.mark.slow
def test_four_threads_at_once(tmp_path: Path) -> None:
    """Of a model without a custom operator in Python: with one, torch's runner itself waits forever."""
    exported = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()), (X,))
    path = kernelscope.aoti_compile_and_package(exported, package_path=str(tmp_path / "m.pt2"))
    model = torch._inductor.aoti_load_package(path)
    inputs = [torch.full((5, 4), float(i)) for i in range(4)]
    expected = [model(x) for x in inputs]
    with kernelscope.record(values="hash") as run, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: model(inputs[i % 4]), range(40)))
    assert all(torch.equal(one, expected[i % 4]) for i, one in enumerate(found))
    by_execution: dict[int, list[str]] = {}
    for call in run:
        by_execution.setdefault(call.graph_call, []).append(call.kernel_name)
    assert len(by_execution) == 40
    assert len({tuple(names) for names in by_execution.values()}) == 1
    assert not run.findings


def test_no_room_for_values_is_said(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelscope.probes.cpp_wrappers.instrumented_graphs.ROOM", 1)
    with kernelscope.record(values="hash") as run:
        model(X)
    assert "values-not-copied" in {finding.kind for finding in run.findings}
    assert not any(call.post_hashes for call in run)
    assert len(run) > 5


def test_what_cannot_be_replaced_is_said(model: Any) -> None:
    with (
        pytest.raises(RuntimeError, match="no Python runs between kernels"),
        kernelscope.replace("cpp_*", lambda args: args["in_ptr0"]),
    ):
        model(X)


def test_a_failing_launch_is_recorded(model: Any) -> None:
    with kernelscope.record() as run, pytest.raises(RuntimeError):
        model(torch.ones(5, 3))
    assert run.calls
    assert run.calls[-1].error


SCRIPT = """
import sys
import torch, torch._inductor
if "import" in sys.argv:
    import kernelscope
torch.library.define("kernelscope_tests::twice", "(Tensor x) -> Tensor")
torch.library.impl("kernelscope_tests::twice", "cpu", lambda x: x * 2)
model = torch._inductor.aoti_load_package(sys.argv[1])
model(torch.ones(5, 4))
print("reached the end")
"""


def child(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELSCOPE")}
    environment |= {"PYTHONPATH": str(SRC), **variables}
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=250
    )


def test_torchs_variables_under_kernelscope_run(package: Path, tmp_path: Path) -> None:
    done = child(
        tmp_path, "-m", "kernelscope", "run", "-o", "r", "script.py", str(package),
        **{PRINTER: "2", FILTERED: "aoti_torch_cpu_addmm_out"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("inductor: ")]
    assert {title.split(" - ")[1] for title in titles} == {"aoti_torch_cpu_addmm_out"}
    assert "aoti_model_inputs - arg4_1" in done.stdout
    run = load(tmp_path / "r.kscope")
    assert "aoti_torch_cpu_topk" in [call.kernel_name for call in run]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["1", "2", "3"])
def test_torchs_variables_under_plain_python(package: Path, tmp_path: Path, level: str) -> None:
    done = child(tmp_path, "script.py", str(package), "import", **{PRINTER: level})
    assert done.returncode == 0, done.stderr
    assert "reached the end" in done.stdout
    if level == "1":
        [file] = tmp_path.rglob("0/after_launch_*.pt")
        torch.load(file, weights_only=True)
    elif level == "2":
        assert "inductor: after_launch - aoti_torch_cpu_topk - buf" in done.stdout
    else:
        assert "[ before_launch: aoti_torch_cpu_topk ]" in done.stdout


@pytest.mark.slow
def test_a_package_runs_without_us(package: Path, tmp_path: Path) -> None:
    done = child(tmp_path, "script.py", str(package), PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert "reached the end" in done.stdout


@pytest.mark.slow
def test_a_package_that_somebody_else_compiled(tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(4, 2), (X,))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "m.pt2"))
    model = torch._inductor.aoti_load_package(path)
    with kernelscope.record() as run:
        model(X)
    [finding] = run.findings
    assert finding.kind == "unseen-graph"
    assert "kernelscope.aoti_compile_and_package" in finding.message
    assert "program.module()" in finding.message


# -- cpp_wrapper -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> Iterator[Any]:
    """A small model, compiled with a C++ wrapper inside a recording, and its eager twin's gradients."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model(X).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    compiled = torch.compile(model)
    with inductor.patch(cpp_wrapper=True):
        with kernelscope.record(values="stats") as run:
            model.zero_grad()
            compiled(X).sum().backward()
        found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        yield compiled, found, gradients, run
    torch._dynamo.reset()


def test_a_training_step_with_cpp_wrapper(trained: Any) -> None:
    compiled, found, gradients, run = trained
    torch.testing.assert_close(found, gradients)
    assert {call.phase for call in run} == {"forward", "backward"}
    assert {call.kind for call in run} == {"cpp", "extern"}
    assert not run.findings
    last = [call for call in run if call.kernel_name == "aoti_torch_cpu_mm_out"][-1]
    assert last.post_stats
    with kernelscope.record() as again:  # it tells of its launches for as long as it lives
        compiled(X)
    assert [call.kernel_name for call in again] == [c.kernel_name for c in run if c.phase == "forward"]


def test_the_levels_with_cpp_wrapper(trained: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    compiled, _, _, run = trained
    stream = io.StringIO()
    with observe("2", stream=stream):
        compiled(X).sum().backward()
    text = stream.getvalue()
    for call in run:
        for arg in call.arguments:
            if arg.tensor is not None:
                assert f"inductor: after_launch - {call.kernel_name} - {arg.wrapper_name}\n" in text
    assert "aoti_model_inputs - primals_1\n" in text
    assert "aoti_model_inputs - tangents_1\n" in text
    capfd.readouterr()
    with observe("3", kernels="cpp_*"):
        compiled(X)
    told = capfd.readouterr()
    assert set(told.out.splitlines()) == {
        "[ before_launch: cpp_fused_relu_0 ]",
        "[ after_launch: cpp_fused_relu_0 ]",
    }
    assert not told.err  # no word of a filter that matched nothing
    with observe("1", folder=tmp_path / "v"):
        compiled(X)
    relu = tmp_path / "v" / "1"
    before = torch.load(relu / "before_launch_cpp_fused_relu_0_buf1_cpu.pt", weights_only=True)
    after = torch.load(relu / "after_launch_cpp_fused_relu_0_buf1_cpu.pt", weights_only=True)
    assert torch.equal(after, before.relu())


def test_the_producer_of_a_nan_with_cpp_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    w = torch.eye(4)
    with inductor.patch(cpp_wrapper=True):
        function = torch.compile(lambda x: torch.log(x.mm(w) - 3).mm(w).relu())
        with pytest.raises(WatchHit) as stopped, watch("nan"):
            function(torch.arange(16.0).view(4, 4))
        assert "log" in stopped.value.hit.kernel
        assert stopped.value.hit.is_producer
        monkeypatch.setattr("kernelscope.values.session.has_gpu", lambda: True)  # and so no statistics
        with pytest.raises(WatchHit) as stopped, watch("nan"):
            function(torch.arange(16.0).view(4, 4))
    assert "log" in stopped.value.hit.kernel


def test_odd_arguments_with_cpp_wrapper() -> None:
    """Expanded ones, very many of them, with very many dimensions, and an operator that writes."""
    torch._dynamo.reset()
    x, many = torch.randn(1, 3).expand(4, 3), [torch.full((3,), float(i)) for i in range(70)]
    nine, deep, target = torch.randn(*[2] * 9), torch.randn(*[1] * 17), torch.ones(3)

    def function(x: Any, many: Any, nine: Any, deep: Any, target: Any) -> Any:
        raise_by(target, 2.0)
        return x * 2, torch._foreach_add(many, 1.0), torch.sort(nine)[0], torch.sort(deep)[0], x.t()

    with inductor.patch(cpp_wrapper=True):
        compiled = torch.compile(function)
        with kernelscope.record(values="stats") as run:
            doubled, raised, ordered, *_ = compiled(x, many, nine, deep, target)
    assert torch.equal(target, torch.full((3,), 3.0))
    assert torch.equal(doubled, 2 * x)
    assert torch.equal(raised[69], torch.full((3,), 70.0))
    stats = [stats for call in run for stats in call.post_stats.values()]
    assert {float(i + 1) for i in range(70)} <= {each.max for each in stats if each.numel == 3}
    assert any(each.numel == 12 and each.max == doubled.max().item() for each in stats)
    assert any(each.numel == 512 and each.min == ordered.min().item() for each in stats)
    [writes] = [call for call in run if "raise_by" in call.kernel_name]
    assert dict(zip(writes.arg_names, writes.roles, strict=True)) == {"x": "inout"}
    assert (writes.pre_stats[0].max, writes.post_stats[0].max) == (1.0, 3.0)
    assert {finding.kind for finding in run.findings} == {"values-not-copied"}
    assert all("it has 17 dimensions" in finding.message for finding in run.findings)


def test_a_wrapper_that_launches_nothing() -> None:
    torch._dynamo.reset()
    with inductor.patch(cpp_wrapper=True), kernelscope.record() as run:
        torch.compile(lambda x: x.t())(X)
    assert not run.calls
    (finding,) = run.findings  # why the run is empty, and no graph that was not seen
    assert "1 compiled graph ran, with nothing to launch" in finding.message


def test_what_we_add_keeps_nothing_from_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may be with a torch that is newer than we are."""
    from kernelscope.probes.cpp_wrappers import instrumented_code as cpp_code

    torch._dynamo.reset()
    monkeypatch.setattr(cpp_code, "header", lambda: "int broken = ;")
    with inductor.patch(cpp_wrapper=True), kernelscope.record() as run:
        assert torch.equal(torch.compile(lambda x: x * 17)(X), X * 17)
    assert not run.calls
    assert [f.kind for f in run.findings] == ["unseen-graph"] * 2  # why, and that it ran
    assert "could not be compiled with the code that reports its launches" in run.findings[0].message


@pytest.mark.slow
def test_a_graph_compiled_before_the_recording_is_said() -> None:
    torch._dynamo.reset()
    with inductor.patch(cpp_wrapper=True, fx_graph_cache=False):
        function = torch.compile(lambda x: x.sin() + 17)
        function(X)
        with kernelscope.record() as run:
            function(X)
    assert [finding.kind for finding in run.findings] == ["unseen-graph"]
    assert "compile it inside the recording" in run.findings[0].message


@pytest.mark.slow
def test_operators_looked_up_at_run_time() -> None:
    torch._dynamo.reset()
    with inductor.patch(cpp_wrapper=True):
        function = torch.compile(
            lambda x: (twice(x) + 1, torch.linalg.inv(x @ x.t() + 9 * torch.eye(5)), *pair([x[1:], x[:4]]))
        )
        with kernelscope.record(values="hash") as run:
            doubled, *_ = function(X)
    assert torch.equal(doubled, 2 * X + 1)
    names = [call.kernel_name for call in run]
    assert "kernelscope_tests.twice.default" in names
    assert "aten.linalg_inv_ex.default" in names
    assert all(call.post_hashes for call in run)
    [pairs] = [call for call in run if "pair" in call.kernel_name]
    assert list(pairs.arg_names) == ["xs[0]", "xs[1]", "result0", "result1"]
    assert pairs.pre_hashes[0] == pairs.pre_hashes[1] == fingerprint(X[1:]).bits
