"""What the compiler did, recorded: every kernel to its nodes and lines, in memory, on disk, in commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from tests.integration.stages.staged_programs import SCHEMA, recorded
from tests.programs import blocks
from tests.support import stage_checks
from tests.support.warm_python import WarmPython

import kernelscope
from kernelscope.cli import main
from kernelscope.stages import StagedGraph, render
from kernelscope.stages.document import document

PROGRAM = Path(blocks.__file__)


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


def test_runnable_graph_runs(mlp: Path, tmp_path: Path, warm_python: WarmPython) -> None:
    assert main(["stages", str(mlp), "--graph", "0/0", "--export", str(tmp_path / "out")]) == 0
    [folder] = (tmp_path / "out").iterdir()
    child = warm_python.run("fx_graph_runnable.py", cwd=folder)
    assert child.returncode == 0, child.stderr


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
