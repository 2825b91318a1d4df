"""A hook target that has moved: one clear error, or a warning and a run without that probe."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.conftest import PATCH_TARGETS, PATCHED_FUNCTIONS

import kernelscope
from kernelscope.config import Config
from kernelscope.late_modules import LATE
from kernelscope.probes.patching import ADVICE, MovedTarget, Patch, resolve
from kernelscope.probes.probe_list import PROBES
from kernelscope.recording import Recording
from kernelscope.supported import in_words

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
HAS_PRECOMPILE = importlib.util.find_spec("torch._precompile") is not None
needs_precompile = pytest.mark.skipif(not HAS_PRECOMPILE, reason="this torch cannot precompile")
needs_graphs = pytest.mark.skipif(
    importlib.util.find_spec("torch.accelerator.graphs") is None, reason="this torch has no accelerator.Graph"
)

# (probe, target, settings of a recording that needs it)
TARGETS = [
    ("Autotuning", "torch._inductor.runtime.benchmarking:Benchmarker.benchmark", {}),
    ("CollectiveWaits", "torch.distributed:Work.wait", {}),
    ("CompiledGraphs", "torch._inductor.output_code:CompiledFxGraph.__call__", {}),
    ("CompiledGraphs", "torch._inductor.output_code:CompiledFxGraph.post_compile", {}),
    ("CompiledGraphs", "torch._inductor.output_code:CompiledFxGraph", {}),
    ("CppWrappers", "torch._inductor.codecache:AotCodeCompiler.compile", {}),
    ("CppWrappers", "torch.export.pt2_archive._package:AOTICompiledModel.__call__", {}),
    ("CudaGraphs", "torch.cuda:CUDAGraph.capture_begin", {}),
    ("CudaGraphs", "torch.cuda:CUDAGraph.capture_end", {}),
    ("CudaGraphs", "torch.cuda:CUDAGraph.replay", {}),
    *(
        pytest.param("CudaGraphs", f"torch.accelerator.graphs:Graph.{name}", {}, marks=needs_graphs)
        for name in ("capture_begin", "capture_end", "replay")
    ),
    ("GcuGraphs", "kernelscope.gcu.execution.executor:CompiledGraph.__call__", {}),
    ("GcuGraphs", "kernelscope.gcu.execution.executor:Launch.run", {}),
    ("GcuGraphs", "kernelscope.gcu.execution.executor:AtenCall.run", {}),
    ("OptimizerSteps", "torch.autograd.profiler:record_function.__enter__", {}),
    ("OptimizerSteps", "torch.autograd.profiler:record_function.__exit__", {}),
    ("Profilers", "torch.autograd.profiler:_run_on_profiler_start", {}),
    ("Profilers", "torch.autograd.profiler:_run_on_profiler_stop", {}),
    ("TriedFrames", "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__", {}),
    ("TriedFrames", "torch._dynamo.convert_frame:format_error_msg", {}),
    ("TriedFrames", "torch._dynamo.decorators:_set_stance", {}),
    ("TriedFrames", "torch._dynamo.eval_frame:_NullDecorator.__call__", {}),
    ("EagerOperators", "torch.utils._python_dispatch:_push_mode", {"ops": "all"}),
    ("EagerOperators", "torch.utils._python_dispatch:_pop_mode", {"ops": "all"}),
    ("EagerOperators", "torch._guards:TracingContext.try_get", {"ops": "all"}),
    *(
        pytest.param("PrecompiledArtifacts", f"torch._precompile:{name}", {}, marks=needs_precompile)
        for name in ("_make_inlined_forward", "PrecompiledModule.__call__")
    ),
    *(
        pytest.param("UserTriton", target, {}, marks=needs_triton)
        for target in (
            "triton.runtime.jit:JITFunction.run",
            "triton.runtime.interpreter:InterpretedFunction.run",
            "triton.runtime.autotuner:Autotuner._bench",
        )
    ),
]


def test_every_probe_is_covered() -> None:
    named = {t.values[0] if hasattr(t, "values") else t[0] for t in TARGETS}
    assert {type(p).__name__ for p in PROBES.always} | {"EagerOperators"} == named


def test_the_check_for_leftovers_knows_every_target() -> None:
    """What tests/conftest.py looks at after each test is what the probes replace."""
    known = {f"{owner}.{name}" for _, owner, names in PATCH_TARGETS for name in names}
    known |= {f"{module}.{name}" for module, names in PATCHED_FUNCTIONS for name in names}
    for module in LATE:  # what is not loaded is not patched yet
        importlib.import_module(module)
    with kernelscope.record(stages=True):
        patches = [p for probe in [*PROBES.always, PROBES.stages] for p in probe.patches]
        for patch in patches:
            importlib.import_module(patch.module)  # only then is it replaced
        replaced = {patch.replaced for patch in patches}
    assert len(replaced) > 20
    assert replaced <= known


def take_away(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Rename the target, in the class that defines it where it is inherited."""
    holder, name = resolve(target)
    home = next((c for c in getattr(holder, "__mro__", ()) if name in vars(c)), holder)
    original = vars(home)[name]
    monkeypatch.delattr(home, name)
    for base in getattr(holder, "__mro__", ())[1:]:
        if name in vars(base):
            monkeypatch.delattr(base, name, raising=False)
    monkeypatch.setattr(home, f"{name}_moved", original, raising=False)


@pytest.fixture(scope="module")
def tiny() -> Callable[[torch.Tensor], torch.Tensor]:
    compiled = torch.compile(lambda x: x.sin() + 1)
    compiled(torch.ones(8))
    return compiled


@pytest.fixture
def nothing_left(leftovers: Callable[[], list[str]]) -> Callable[[], None]:
    def check() -> None:
        from kernelscope.probes.bus import BUS

        assert not leftovers()
        assert not BUS.listeners
        assert not PROBES.are_used
        assert not PROBES.installed

    return check


@pytest.mark.parametrize(("probe", "target", "settings"), TARGETS)
def test_strict(probe: str, target: str, settings: dict[str, Any], nothing_left: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        take_away(monkeypatch, target)
        with pytest.raises(MovedTarget) as caught, kernelscope.record(**settings):
            pytest.fail("recorded without its hooks")
        said = str(caught.value)
    assert target.replace(":", ".") in said
    assert f"torch {torch.__version__}" in said
    assert "KERNELSCOPE_STRICT=0" in said
    nothing_left()
    with kernelscope.record(**settings):
        pass


@pytest.mark.parametrize(("probe", "target", "settings"), TARGETS)
def test_not_strict(
    probe: str,
    target: str,
    settings: dict[str, Any],
    tiny: Callable[[torch.Tensor], torch.Tensor],
    nothing_left: Callable[[], None],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        needed = ("torch._inductor.output_code", "torch._guards", "torch._dynamo.convert_frame")
        torch_needs_it = target.startswith(needed)
        program = torch.sin if torch_needs_it else tiny
        take_away(monkeypatch, target)
        monkeypatch.setenv("KERNELSCOPE_STRICT", "0")
        with pytest.warns(RuntimeWarning) as warned, kernelscope.record(**settings) as run:
            result = program(torch.ones(8))
    (warning,) = warned
    said = str(warning.message)
    assert said.startswith(f"{probe} is off")
    assert target.replace(":", ".") in said
    assert f"torch {torch.__version__}" in said
    assert "KERNELSCOPE_STRICT" not in said  # it is set already
    assert [f.message for f in run.findings if f.kind == "probe-off"] == [said]
    assert warning.filename == __file__
    assert torch.equal(result, torch.ones(8).sin() + (0 if torch_needs_it else 1))
    assert [c.kind for c in run] == ([] if torch_needs_it else ["cpp"])
    nothing_left()


def test_the_other_probes_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compiled graphs, eager operators and steps are still seen."""
    parameter = torch.ones(2, requires_grad=True)
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with pytest.MonkeyPatch.context() as patch:
        take_away(patch, "torch._inductor.output_code:CompiledFxGraph.post_compile")
        recording = Recording(Config(ops="all", strict=False))
        with pytest.warns(RuntimeWarning, match="CompiledGraphs"):
            recording.open()
        optimizer.step()
        torch.ones(2).sin()
        recording.close()
    assert recording.run.select(phase="optimizer", step=0)
    assert recording.run.select(kernel="aten.sin.default", step=1)


def test_several_moved_targets_are_all_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_away(patch, "torch.autograd.profiler:record_function.__exit__")
        take_away(patch, "torch.cuda:CUDAGraph.replay")
        patch.setenv("KERNELSCOPE_STRICT", "0")
        with pytest.warns(RuntimeWarning) as warned, kernelscope.record():
            pass
    assert [str(w.message).partition(" ")[0] for w in warned] == ["CudaGraphs", "OptimizerSteps"]


def test_a_recording_that_joins_a_crippled_one_hears_of_it(nothing_left: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_away(patch, "torch.cuda:CUDAGraph.replay")
        patch.setenv("KERNELSCOPE_STRICT", "0")
        first = Recording(Config(strict=False))
        with pytest.warns(RuntimeWarning, match="CudaGraphs"):
            first.open()
        with pytest.warns(RuntimeWarning, match="CudaGraphs"), kernelscope.record():
            pass
        patch.setenv("KERNELSCOPE_STRICT", "1")
        with pytest.raises(MovedTarget, match=r"CUDAGraph\.replay") as raised, kernelscope.record():
            pytest.fail("recorded without its hooks")
        assert str(raised.value).endswith(ADVICE)
        first.close()
    nothing_left()


def test_a_warning_that_is_an_error_leaves_nothing(nothing_left: Callable[[], None]) -> None:
    import warnings

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="error"):
        take_away(patch, "torch.autograd.profiler:record_function.__exit__")
        patch.setenv("KERNELSCOPE_STRICT", "0")
        with pytest.raises(RuntimeWarning, match="OptimizerSteps"), kernelscope.record():
            pytest.fail("opened")
    nothing_left()


def test_a_probe_that_fails_otherwise_leaves_nothing(nothing_left: Callable[[], None]) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    probe = PROBES.always[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe.patches[-1], "make", broken)
        with pytest.raises(ZeroDivisionError), kernelscope.record():
            pytest.fail("opened")
    nothing_left()


def test_without_triton(
    tiny: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch for the CPU comes without Triton: there is nothing to hook, and nothing to complain about."""
    from kernelscope.probes.triton import user_kernels as user_triton

    for name in [n for n in sys.modules if n.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(user_triton, "find_spec", lambda name: None)
    with kernelscope.record() as run:
        tiny(torch.ones(8))
    assert len(run) == 1
    assert "triton" not in sys.modules


def test_a_graph_without_what_we_read_of_it_is_a_finding(
    tiny: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moved inside an object shows only when it is used: said in the run, and the program goes on."""
    from kernelscope.probes.python_wrappers import compiled_graphs

    def broken(compiled: Any) -> Any:
        raise AttributeError("'CompiledFxGraph' object has no attribute 'fx_kwargs'")

    monkeypatch.setattr(compiled_graphs, "direction_of", broken)
    with kernelscope.record() as run:
        assert torch.equal(tiny(torch.ones(8)), torch.ones(8).sin() + 1)
    assert [f.kind for f in run.findings] == ["recorder-error"]
    assert "fx_kwargs" in str(run.findings[0])


def test_patch_of_an_inherited_method_uncovers_it_again() -> None:
    class Base:
        def f(self) -> str:
            return "base"

    class Child(Base):
        pass

    module = sys.modules[__name__]
    module.Child = Child  # type: ignore[attr-defined]
    try:
        patch = Patch(f"{__name__}:Child.f", lambda original: lambda self: f"ours over {original(self)}")
        patch.install()
        assert Child().f() == "ours over base"
        patch.remove()
        patch.remove()
        assert Child().f() == "base"
        assert "f" not in vars(Child)
    finally:
        del module.Child  # type: ignore[attr-defined]


def test_a_newer_torch_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with kernelscope.record() as run:
        pass
    assert not [f for f in run.findings if f.kind == "untested-version"]
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with kernelscope.record() as run:
        pass
    assert [f.message for f in run.findings if f.kind == "untested-version"] == [
        f"torch 2.99 is newer than any that is supported ({in_words('torch').removeprefix('torch ')})"
    ]
