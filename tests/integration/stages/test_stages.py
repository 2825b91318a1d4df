"""What the compiler did, recorded: every kernel to its nodes and lines, cold, warm, in memory and on disk."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from tests.programs import blocks
from tests.support import stage_checks
from tests.support.warm_python import WarmPython
from torch._inductor.codecache import FxGraphHashDetails

import kernelscope
from kernelscope.cli import main
from kernelscope.stages import StagedGraph, render
from kernelscope.stages.document import document

ROOT = Path(__file__).parents[3]
PROGRAM = Path(blocks.__file__)
SCHEMA = json.loads((ROOT / "docs" / "stages.schema.json").read_text())


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A compile cache of our own: what is cold and what is warm is then known."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        yield folder


def recorded(name: str, path: Path | None = None, **settings: Any) -> kernelscope.Run:
    torch._dynamo.reset()
    step = blocks.training_step(name)
    with kernelscope.record(stages=True, path=path, **settings) as run:
        step()
    return run


@pytest.mark.parametrize("name", blocks.MODELS)
def test_every_kernel_leads_to_its_nodes_and_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))  # other tests have the same models
    cold = recorded(name, tmp_path / "cold")
    warm = recorded(name, tmp_path / "warm")
    for run, made in ((cold, "compiled"), (warm, "cached")):
        assert [g.direction for g in run.stages] == ["forward", "backward"]
        assert [g.made for g in run.stages] == [made, made]
        for graph in run.stages:
            stage_checks.check_graph(graph, PROGRAM)
        stage_checks.check_calls(run, PROGRAM)
    for a, b in zip(cold.stages, warm.stages, strict=True):
        assert a.provenance == [with_id(p, a) for p in b.provenance]
        assert set(a.stages) == set(b.stages)
        assert [(r.first, r.second, r.reason) for r in a.refusals] == [
            (r.first, r.second, r.reason) for r in b.refusals
        ]


def with_id(record: Any, graph: StagedGraph) -> Any:
    from dataclasses import replace

    return replace(record, compilation=graph.compilation.id)


@pytest.fixture(scope="module")
def mlp(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded step on disk."""
    path = tmp_path_factory.mktemp("runs") / "mlp"
    recorded("mlp", path)
    return path.with_name("mlp.kscope")


def test_the_same_from_memory_and_from_disk(cache: Path, mlp: Path, tmp_path: Path) -> None:
    memory = recorded("mlp")
    saved = kernelscope.load(memory.save(tmp_path / "saved"))
    for a, b in zip(memory.stages, saved.stages, strict=True):
        assert a.stages == b.stages
        assert (a.provenance, a.refusals, a.compilation) == (b.provenance, b.refusals, b.compilation)
    assert [c.provenance for c in memory.calls] == [c.provenance for c in saved.calls]


def test_stages_of_a_graph(mlp: Path) -> None:
    forward, backward = kernelscope.load(mlp).stages
    expected = ["dynamo", "guards", "pre_grad", "joint", "aot", "post_grad", "schedule_before", "schedule"]
    for graph in (forward, backward):
        names = [n for n in graph.stages if n in (*expected, "output_code")]
        assert names == [*expected, "output_code"]
        assert any(name.startswith("pass ") for name in graph.stages)
        assert graph.phases["Scheduler.__init__"] > 0
        assert graph.kernels
    assert "TENSOR_MATCH" in forward.stage("guards").text
    assert "tangents_1" in backward.stage("aot").text
    assert "tangents_1" not in forward.stage("aot").text
    diff = forward.stage("pass joint_graph_passes/remove_noop_ops").text
    assert "\n-" in diff
    assert any(r.reason for g in (forward, backward) for r in g.refusals)


def test_sections_and_schema(mlp: Path) -> None:
    run = kernelscope.load(mlp)
    for graph in run.stages:
        made = document(graph, run.info.versions)
        jsonschema.validate(made, SCHEMA)
        text = render(made)
        for title in (
            "FX GRAPH MODULE", "INTERNAL DAG REPRESENTATION", "GENERATED CODE", "HOST WRAPPER INTEGRATION"
        ):  # fmt: skip
            assert f"\n{'=' * 80}\n=== {title} ===\n{'=' * 80}\n" in text
        kernels = {k["name"]: k for k in made["code"]["kernels"]}
        assert all(k["fx"] and k["origin"] for k in kernels.values())
        assert {b["name"] for b in made["wrapper"]["buffers"]} >= {"buf0"}
        lines = [line["text"] for line in made["wrapper"]["critical"]]
        assert any("extern_kernels." in line for line in lines)


def test_command_line(mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        assert main(["stages", str(mlp), *words]) == 0
        return capsys.readouterr().out

    assert "graph 0/0 backward" in shown()
    assert "def forward(self" in shown("--graph", "0/0", "--stage", "post_grad")
    assert "+++ aot" in shown("--graph", "0/0 backward", "--diff", "joint", "aot")
    kernel = shown("--kernel", "cpp_fused*gelu*")
    assert "gelu(hidden).relu()" in kernel
    assert 'extern "C"' in kernel
    assert "aten.erf.default" in kernel
    listed = json.loads(shown("--json"))
    assert [g["direction"] for g in listed["graphs"]] == ["forward", "backward"]
    backward = listed["graphs"][1]["aot_id"]
    assert backward.endswith("_backward")
    jsonschema.validate(json.loads(shown("--graph", backward, "--json"))["graph"], SCHEMA)
    some = shown("--sections", "--only", "dag", "--lines", "5", "--no-flow")
    assert "FX GRAPH MODULE" not in some
    assert "more lines" in some
    assert "Data Flow" not in some
    assert "refused:" in shown("--fusion")
    for words, said in (
        (("--graph", "7/7"), "there is no graph '7/7'"),
        (("--graph", "0/0", "--stage", "nonsense"), "has no stage 'nonsense'; it has dynamo"),
        (("--stage", "aot"), "choose it with --graph"),
        (("--kernel", "nope"), "no kernel matches 'nope'"),
        (("--sections", "--only", "nope"), "there is no section 'nope'"),
    ):
        assert main(["stages", str(mlp), *words]) == 2
        assert said in capsys.readouterr().err
    for words in (["--call", "1"], ["--kernel", "cpp_*gelu*"]):
        assert main(["show", str(mlp), *words]) == 0
        said = capsys.readouterr().out
        assert "computes" in said
        assert "aten.erf.default" in said


def test_a_graph_that_was_compiled_before_has_no_stages(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = torch.compile(lambda x: x.cosh() + 1)
    compiled(torch.ones(24))
    with kernelscope.record(stages=True, path=tmp_path / "x") as run:
        compiled(torch.ones(24))
        torch.compile(lambda x: x.cosh() + 2)(torch.ones(24))
    assert [run.stages_of(g) is None for g in run.graphs] == [True, False]
    assert run.calls[0].provenance is None
    assert run.calls[0].origin is not None
    assert main(["stages", str(tmp_path / "x.kscope")]) == 0
    assert "compiled before the recording began" in capsys.readouterr().out


_CHECK = """
import importlib.util, sys, torch, kernelscope
from kernelscope.fingerprint import fingerprint
spec = importlib.util.spec_from_file_location("output_code", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
inputs = torch.load(sys.argv[2], weights_only=True)
print([f"{fingerprint(t.detach()).bits:016x}" for t in module.call(list(inputs))])
"""


def test_exported_code_runs_and_gives_the_recorded_hashes(
    cache: Path, tmp_path: Path, warm_python: WarmPython
) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w).softmax(-1)

    torch.manual_seed(1)
    x, w = torch.randn(8, 16), torch.randn(16, 32)
    with kernelscope.record(stages=True, values="hash", path=tmp_path / "run") as run:
        torch.compile(f)(x, w)
    assert main(["stages", str(tmp_path / "run.kscope"), "--export", str(tmp_path / "out")]) == 0
    [folder] = (tmp_path / "out").iterdir()
    names = {p.name for p in folder.iterdir()}
    assert {"fx_graph_readable.py", "fx_graph_runnable.py", "output_code.py", "document.json"} <= names
    for name in names:
        if name.endswith(".py"):
            compile((folder / name).read_text(), name, "exec")
    jsonschema.validate(json.loads((folder / "document.json").read_text()), SCHEMA)
    # Its inputs in its own order: it unpacks them by name, the recorded calls have the same names.
    code = (folder / "output_code.py").read_text()
    order = code.split("= args\n")[0].rpartition("\n")[2].split(",")
    given = {"arg0_1": x, "arg1_1": w} if shape_of(run, "arg0_1") == (8, 16) else {"arg0_1": w, "arg1_1": x}
    torch.save([given[name.strip()] for name in order if name.strip()], tmp_path / "inputs.pt")
    child = warm_python.run("-c", _CHECK, folder / "output_code.py", tmp_path / "inputs.pt")
    assert child.returncode == 0, child.stderr
    last = run.calls[-1]
    recorded_hashes = [f"{h:016x}" for i, h in last.post_hashes.items() if last.roles[i] in ("out", "inout")]
    assert child.stdout.strip().strip("[]").strip("'") in recorded_hashes


def shape_of(run: kernelscope.Run, name: str) -> tuple[int, ...]:
    return next(a.tensor.shape for c in run.calls for a in c.arguments if a.wrapper_name == name and a.tensor)


def test_runnable_graph_runs(mlp: Path, tmp_path: Path, warm_python: WarmPython) -> None:
    assert main(["stages", str(mlp), "--graph", "0/0", "--export", str(tmp_path / "out")]) == 0
    [folder] = (tmp_path / "out").iterdir()
    child = warm_python.run("fx_graph_runnable.py", cwd=folder)
    assert child.returncode == 0, child.stderr


# -- breaks, recompilations, failures ------------------------------------------------------------------


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if line.strip() == text)


def test_two_graph_breaks_and_a_recompilation(cache: Path, tmp_path: Path) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print("the first break")
        z = y.cos()
        torch._dynamo.graph_break()
        return z + 1

    compiled = torch.compile(broken, dynamic=False)
    with kernelscope.record(stages=True, path=tmp_path / "x") as run:
        compiled(torch.ones(4))
        assert not run.stages.recompiles
        compiled(torch.ones(5))
    first, second = run.stages.graph_breaks[:2]
    assert (first.origin[0].file, first.origin[0].line) == (__file__, line_of('print("the first break")'))
    assert "print" in first.reason
    assert (second.origin[0].file, second.origin[0].line) == (
        __file__,
        line_of("torch._dynamo.graph_break()"),
    )
    assert "graph_break" in second.reason
    again = run.stages.recompiles[0]
    assert "expected 4, actual 5" in again.reason
    assert (again.origin[0].file, again.origin[0].function) == (__file__, "broken")
    assert again.origin[0].line == line_of("def broken(x: torch.Tensor) -> torch.Tensor:")
    assert again.origin[1].line == line_of("compiled(torch.ones(5))")


def test_a_lowering_that_raises(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import lowering

    def raises(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("this lowering is broken")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.erfc(y)

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.erfc.default, raises)
    said = the_exception(program)
    with kernelscope.record(stages=True, fresh=True) as run:
        assert the_exception(program) == said
    [failure] = run.stages.failures
    assert failure.stage == "lowering"
    assert "this lowering is broken" in failure.reason
    assert "aten.erfc" in failure.reason
    assert failure.origin[0].line == line_of("return torch.erfc(y)")
    [graph] = run.stages
    assert graph.made == "failed"
    assert {"dynamo", "pre_grad", "aot", "post_grad", "runnable"} <= set(graph.stages)
    made = document(graph, run.info.versions)
    jsonschema.validate(made, SCHEMA)
    assert made["error"]["stage"] == "lowering"
    assert made["code"] is None


def test_a_kernel_that_does_not_compile(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.tanh(y) * 3

    for overrides in (CppOverrides, CppVecOverrides):
        monkeypatch.setattr(overrides, "tanh", staticmethod(lambda x: f"no_such_function({x})"))
    with kernelscope.record(stages=True, fresh=True, path=tmp_path / "x") as run:
        kind, text = the_exception(program)
    assert kind == "InductorError"
    assert "CppCompileError" in text
    [failure] = run.stages.failures
    assert failure.stage == "kernel"
    assert failure.reason.startswith("cpp_fused_add_mul_tanh_0, line ")
    assert "no_such_function" in failure.reason
    [marked] = [line for line in failure.source.splitlines() if line.startswith(">")]
    assert "no_such_function(" in marked
    assert line_of("return torch.tanh(y) * 3") in {f.line for f in failure.origin}
    [graph] = run.stages
    assert graph.made == "failed"
    assert "no_such_function" in graph.stage("output_code").text
    assert {"schedule_before", "schedule", "dag"} <= set(graph.stages)


def the_exception(program: Callable[[torch.Tensor], torch.Tensor]) -> tuple[str, str]:
    torch._dynamo.reset()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is torch's business
        torch.compile(program)(torch.ones(64))
    return type(caught.value).__name__, str(caught.value)


# -- caches --------------------------------------------------------------------------------------------


def test_warm_caches(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() + 3).sum()

    def stages(**settings: Any) -> tuple[StagedGraph, list[str]]:
        torch._dynamo.reset()
        with kernelscope.record(stages=True, **settings) as run:
            torch.compile(program)(torch.ones(32))
        [graph] = run.stages
        return graph, [f.kind for f in run.findings]

    torch.compile(program)(torch.ones(32))  # fills the cache, without provenance
    if "provenance" in inspect.getsource(FxGraphHashDetails):
        graph, said = stages()
        assert (graph.made, said) == ("compiled", [])
    else:  # torch 2.11 takes a graph without provenance for the same
        graph, said = stages()
        assert (graph.made, said) == ("cached-in-part", ["stages-in-part"])
        shutil.rmtree(tmp_path / "cache")
        graph, said = stages()
        assert (graph.made, said) == ("compiled", [])
    graph, said = stages()
    assert (graph.made, said) == ("cached", [])
    assert graph.provenance[0].nodes[0].frames[0].file == __file__
    graph, said = stages(fresh=True)
    assert (graph.made, said) == ("compiled", [])
    for kept in (tmp_path / "cache" / "kernelscope-stages").iterdir():
        kept.unlink()
    graph, said = stages()
    assert (graph.made, said) == ("cached-in-part", ["stages-in-part"])
    assert {"dynamo", "aot", "post_grad", "output_code"} <= set(graph.stages)
    assert "schedule" not in graph.stages
    assert {n.name for p in graph.provenance for n in p.nodes} == {"exp", "add", "sum_1"}


def test_an_equal_graph_of_another_function_keeps_its_own_lines(cache: Path) -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return x.exp2() * 5

    def other(renamed: torch.Tensor) -> torch.Tensor:

        return renamed.exp2() * 5

    for program, text in ((one, "return x.exp2() * 5"), (other, "return renamed.exp2() * 5")):
        torch._dynamo.reset()
        with kernelscope.record(stages=True) as run:
            torch.compile(program)(torch.ones(48))
        [call] = run.calls
        assert call.provenance is not None
        assert {f.line for n in call.provenance.nodes for f in n.frames[:1]} == {line_of(text)}


# -- what it must not do -------------------------------------------------------------------------------


def test_nothing_is_changed(cache: Path, leftovers: Callable[[], list[str]]) -> None:
    """Same kernels, same results, and torch as it was."""
    from torch._inductor import config

    before = config.get_config_copy()
    bare = recorded_hashes(stages=False)
    assert recorded_hashes(stages=True) == bare
    assert config.get_config_copy() == before
    assert leftovers() == []


def recorded_hashes(stages: bool) -> list[Any]:
    torch._dynamo.reset()
    step = blocks.training_step("mlp")
    with kernelscope.record(values="hash", stages=stages) as run:
        step()
    return [(c.kernel_name, c.site.kernel.source_hash, c.post_hashes) for c in run.calls]


@torch.library.custom_op("kernelscope_tests::stages_add_into", mutates_args=("x",))
def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def test_an_operator_that_returns_nothing_has_its_place_in_the_schedule(cache: Path) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        add_into(x, y.exp())
        return x * 2

    with kernelscope.record(stages=True) as run:
        torch.compile(forward)(torch.randn(4), torch.randn(4))
    assert not [f for f in run.findings if f.kind == "recorder-error"], run.findings
    [graph] = run.stages
    jsonschema.validate(made := document(graph, run.info.versions), SCHEMA)
    assert made["dag"]["buffers"]
    [launch] = [p for p in graph.provenance if p.kernel.endswith("stages_add_into.default")]
    assert any("add_into" in node.name for node in launch.nodes)


def test_extern_kernels_that_torch_does_not_number(cache: Path) -> None:
    def forward(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        largest = x.scatter_reduce(1, i, y, "amax")
        put = torch.zeros(5, 5, dtype=torch.bool).index_put((i[:, 0],), y > 0, accumulate=True)
        return largest, put, x.clone().bernoulli_(0.7)

    x, i = torch.randn(5, 5), torch.randint(0, 5, (5, 5))
    with kernelscope.record(stages=True) as run:
        torch.compile(forward)(x, i, x + 1)
    assert not run.findings
    stage_checks.check_calls(run, Path(__file__))
    [graph] = run.stages
    named = {p.kernel for p in graph.provenance}
    assert {"aten.scatter_reduce_.two", "aten.bernoulli_.float"} <= named
    assert all(p.nodes for p in graph.provenance)


def test_seeds_lead_to_what_draws_with_them(cache: Path) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x.sin(), 0.5)
        return y + torch.rand_like(x)

    with kernelscope.record(stages=True) as run:
        torch.compile(forward)(torch.ones(8, 8))
    [graph] = run.stages
    [seeds] = [n for p in graph.provenance for n in p.nodes if "inductor_seeds" in n.target]
    lines = {
        line_of("y = torch.nn.functional.dropout(x.sin(), 0.5)"),
        line_of("return y + torch.rand_like(x)"),
    }
    assert seeds.frames[0].line in lines
    assert len(seeds.pre_grad) == 2
    assert set(seeds.pre_grad) <= set(stage_checks.places_of_nodes(graph.stage("pre_grad").text))


def test_on_another_thread(cache: Path) -> None:
    """Torch's settings hold for one thread, and backward graphs of a GPU are compiled on another."""
    import threading

    compiled = torch.compile(lambda x: x.expm1() * 2)
    with kernelscope.record(stages=True) as run:
        thread = threading.Thread(target=lambda: compiled(torch.ones(16)))
        thread.start()
        thread.join()
    [graph] = run.stages
    assert [p.kernel for p in graph.provenance] == ["cpp_fused_expm1_mul_0"]


def test_a_hook_that_does_not_fit_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import scheduler

    monkeypatch.delattr(scheduler.WhyNoFuse, "__call__")
    monkeypatch.setattr(scheduler.WhyNoFuse, "say", lambda *args: None, raising=False)
    with kernelscope.record(stages=True) as run:
        torch.compile(lambda x: x.sinh())(torch.ones(16))
    [finding] = run.findings
    assert finding.kind == "stage-hook-missing"
    assert "WhyNoFuse.__call__" in finding.message
    assert "KERNELSCOPE_STRICT" not in finding.message  # it records without the hook already
    [graph] = run.stages
    assert graph.provenance


@pytest.fixture
def no_package() -> Iterator[None]:
    """torch leaves what it noted about a package in its settings, for good."""
    from torch._inductor import config

    # Not by monkeypatch, which finds no such attribute and would delete it in the end.
    with config.patch({"aot_inductor.metadata": {}}):
        yield


def test_settings_are_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TRITON_SOMETHING", "7")
    with config.patch({"epilogue_fusion": False, "cpp.simdlen": 1}):
        for path in (None, tmp_path / "x"):
            with kernelscope.record(path=path) as run:
                pass
            found = run.compiler_settings
            assert found["torch._inductor.config"] == {"epilogue_fusion": False, "cpp.simdlen": 1}
            assert found["environment"]["TRITON_SOMETHING"] == "7"
    with kernelscope.record(stages=True) as run:
        pass
    assert "torch._inductor.config" not in run.compiler_settings  # ours is none of the program's


def test_candidates_with_their_times(cache: Path) -> None:
    from torch._inductor import config

    weight = torch.nn.Parameter(torch.randn(64, 64))
    with (
        config.patch({"max_autotune": True, "freezing": True}),
        torch.no_grad(),
        kernelscope.record(stages=True, fresh=True) as run,
    ):
        torch.compile(lambda x: torch.nn.functional.linear(x, weight))(torch.randn(32, 64))
    candidates = [c for g in run.stages for c in g.candidates]
    assert candidates
    assert sum(c.chosen for c in candidates) >= 1
    assert all(c.nanoseconds > 0 for c in candidates)


def test_a_node_that_a_pass_made_leads_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor pads some products, by timing; the padding has a stack trace and nothing else."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def pad(graph: torch.fx.Graph) -> None:
        [product] = graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
        left, right = product.args
        with graph.inserting_before(product):
            padded = graph.call_function(torch.ops.aten.constant_pad_nd.default, (left, [0, 0, 0, 1]))
            padded.meta = {"val": torch.empty(9, 8), "stack_trace": product.meta["stack_trace"]}
            longer = graph.call_function(torch.ops.aten.mm.default, (padded, right))
            longer.meta = {"val": torch.empty(9, 8), "stack_trace": product.meta["stack_trace"]}
            part = graph.call_function(torch.ops.aten.slice.Tensor, (longer, 0, 0, 8))
            part.meta = dict(product.meta)
        product.replace_all_uses_with(part)
        graph.erase_node(product)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu()

    torch._dynamo.reset()
    x = torch.randn(8, 8)
    with config.patch(post_grad_custom_post_pass=pad), kernelscope.record(stages=True) as run:
        torch.testing.assert_close(torch.compile(program)(x, x), program(x, x))
    [graph] = run.stages
    nodes = {node.name: node.pre_grad for launch in graph.provenance for node in launch.nodes}
    assert nodes["constant_pad_nd_default"] == ("matmul",)
