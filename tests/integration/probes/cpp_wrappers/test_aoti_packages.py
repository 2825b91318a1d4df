"""Values in packages of AOTInductor, where no Python runs between kernels."""

from __future__ import annotations

import gc
import io
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor
from tests.integration.probes.cpp_wrappers.cpp_wrapper_operators import X, twice
from torch.utils._python_dispatch import TorchDispatchMode

import kernelscope
from kernelscope.config import FILTERED, PRINTER
from kernelscope.probes.bus import BUS
from kernelscope.probes.cpp_wrappers.launch_log import loaded_libraries
from kernelscope.store.stored_run import load
from kernelscope.values import WatchHit, observe, watch

SRC = Path(__file__).parents[4] / "src"


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


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the tensors that are copied."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.clone.default
        return func(*args, **(kwargs or {}))


def test_inputs_are_copied_only_where_their_values_are_wanted(model: Any) -> None:
    copies = Copies()  # type: ignore[no-untyped-call]
    with kernelscope.record(), copies:
        model(X)
    assert copies.count == 0
    with observe("2", stream=io.StringIO()), copies:
        model(X)
    assert copies.count > 0


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
        assert not [path for path in loaded_libraries() if "aoti" in path[0] and not Path(path[0]).exists()]


def test_no_room_for_values_is_said(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelscope.probes.cpp_wrappers.listening.ROOM", 1)
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
