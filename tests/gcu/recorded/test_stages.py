"""Stages of gcu graphs in a run: all of them, cached or not, and each launch leads to the user's lines."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from examples import gcu_models
from examples.gcu_models import Mlp, ResNetBlock, TransformerBlock

import kernelscope
from kernelscope.cli import main
from kernelscope.gcu import debug_tracer
from kernelscope.gcu.debug_tracer import DebugTraceConfig, enable_debug_tracing
from kernelscope.stages import render
from kernelscope.stages.document import document
from kernelscope.stages.export import export

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "stages.schema.json").read_text())
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: Mlp(16, 32, 8), (12, 16)),
    "attention": (lambda: TransformerBlock(32, 4), (2, 8, 32)),
    "resnet": (lambda: ResNetBlock(4), (2, 4, 6, 6)),
}
OF_A_GRAPH = {
    "dynamo",
    "fx",
    "guards",
    "aot",
    "lowered",
    "fused",
    "dag",
    "choreo",
    "host_wrapper",
    "output_code",
}


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CONDUCTOR_DEBUG", raising=False)
    yield
    debug_tracer.follow_environment()


def told(run: Any) -> list[Any]:
    """What a run tells of each call, without what is counted per process."""
    return [
        (c.kernel_name, [(n.name, n.target, n.pre_grad, n.frames) for n in c.provenance.nodes])
        for c in run.calls
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_launch_leads_to_its_nodes_and_lines(name: str, tmp_path: Path) -> None:
    make, shape = MODELS[name]
    model, x = make(), torch.randn(*shape)
    runs = []
    for number in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="gcu", fullgraph=True)
        with kernelscope.record(stages=True, path=tmp_path / f"{number}.kscope") as run:
            compiled(x).sum().backward()
        assert not run.findings
        runs.append(run)
    lines = Path(gcu_models.__file__).read_text().splitlines()
    forward, backward = runs[0].stages
    assert (forward.direction, backward.direction) == ("forward", "backward")
    for graph in (forward, backward):
        assert graph.producer == "gcu"
        assert set(graph.stages) >= OF_A_GRAPH
        before_autograd = set(re.findall(r"^\s+(\w+)(?:: [^=]*)? = ", graph.stage("dynamo").text, re.M))
        lowered = set(re.findall(r"^\s+(\w+)(?:: [^=]*)? = ", graph.stage("aot").text, re.M))
        for launch in graph.provenance:
            assert launch.nodes
            for node in launch.nodes:
                assert node.name in lowered
                assert node.pre_grad
                assert set(node.pre_grad) <= before_autograd
                assert node.frames[0].file == gcu_models.__file__
                assert lines[node.frames[0].line - 1].strip()
    for call in runs[0].calls:
        assert call.provenance is not None
        assert call.provenance.kernel == call.kernel_name
        assert call.origin in {f for n in call.provenance.nodes for f in n.frames}
        if call.kind == "gcu":  # the nodes make what the kernel writes
            pairs = zip(call.wrapper_names, call.roles, strict=True)
            assert {name for name, role in pairs if role == "out"} == set(call.provenance.buffers)
    assert [g.made for g in runs[1].stages] == ["cached", "cached"]
    assert told(runs[0]) == told(runs[1]) == told(kernelscope.load(tmp_path / "0.kscope"))


def test_document_is_that_of_the_backends_own_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enable_debug_tracing(DebugTraceConfig(enabled=True, max_tensor_elements=32, debug_dir=str(tmp_path)))
    with kernelscope.record(stages=True) as run:
        torch.compile(lambda x, y: (x + y).relu().cumsum(0), backend="gcu")(
            torch.randn(2, 4), torch.randn(2, 4)
        )
    printed = capsys.readouterr().out
    (graph,) = run.stages
    made = document(graph, {})
    jsonschema.validate(made, SCHEMA)
    assert render(made).strip() == printed.strip()
    (path,) = tmp_path.glob("debug_trace_*.json")
    traced = json.loads(path.read_text())
    assert made["fallbacks"][0]["target"] == "aten.cumsum.default"
    for part in ("fx", "dag", "code", "fallbacks", "versions", "aten"):
        given = json.loads(json.dumps(made[part]))
        for kernel in given["kernels"] if part == "code" else ():
            assert kernel.pop("pre_grad") == ["add", "relu"]
        assert given == traced[part], part


def test_exported_code_runs_and_gives_what_was_recorded(tmp_path: Path) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x @ w).softmax(-1)
        return y, y.topk(2)[1], x.t()[1:] * 2

    known = {"l_x_": torch.randn(5, 8), "l_w_": torch.randn(8, 6)}
    for dynamic in (False, True):
        torch._dynamo.reset()
        with kernelscope.record(stages=True) as run:
            recorded = torch.compile(f, backend="gcu", dynamic=dynamic)(*known.values())
        (graph,) = run.stages
        folder = tmp_path / f"{dynamic}"
        export(graph, folder, {})
        call = runpy.run_path(str(folder / "output_code.py"))["call"]
        names = re.findall(r"^    (.+) = args$", graph.output_code, re.M)[0].split(", ")
        sizes = iter((5, 8, 6))  # as they come in the arguments' shapes
        results = call([known[name] if name in known else next(sizes) for name in names])
        for got, want in zip(results, recorded, strict=True):
            assert torch.equal(got, want)


def test_a_program_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelscope.gcu.choreo.cpp import to_cpp

    original = to_cpp.translate

    def broken(*args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        made = original(*args, **kwargs)
        return replace(made, cpp=made.cpp.replace("#pragma omp simd", "int x = nonsense;\n", 1))

    monkeypatch.setattr("kernelscope.gcu.compile_graph.translate", broken)
    with (
        kernelscope.record(stages=True, path=tmp_path / "failed.kscope") as run,
        pytest.raises(Exception, match="the C\\+\\+ compiler failed"),
    ):
        torch.compile(lambda x: x.relu() * 2, backend="gcu")(torch.randn(200, 300))
    (failure,) = run.stages.failures
    assert failure.stage == "build"
    assert "nonsense" in failure.reason
    marked = [line for line in failure.source.splitlines() if line.startswith(">")]
    assert "nonsense" in marked[0]
    (graph,) = run.stages
    assert graph.made == "failed"
    assert {"dynamo", "lowered", "fused", "choreo", "host_wrapper"} <= set(graph.stages)
    made = document(graph, {})
    jsonschema.validate(made, SCHEMA)
    assert made["error"]["stage"] == "build"


def test_strict_mode_says_which_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_STRICT", "1")
    with (
        kernelscope.record(stages=True) as run,
        pytest.raises(Exception, match="1 operators of this graph are not lowered"),
    ):
        torch.compile(lambda x: torch.cumsum(x, 0), backend="gcu")(torch.ones(3))
    (failure,) = run.stages.failures
    assert failure.stage == "strict"
    assert failure.origin[0].file == __file__
    assert "torch.cumsum" in Path(__file__).read_text().splitlines()[failure.origin[0].line - 1]


def test_fresh_compiles_again() -> None:
    made = []
    for fresh in (False, False, True):
        torch._dynamo.reset()
        with kernelscope.record(stages=True, fresh=fresh) as run:
            torch.compile(lambda x: x * 17 - 3, backend="gcu")(torch.ones(11))
        made += [g.made for g in run.stages]
    assert made[1:] == ["cached", "compiled"]


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.kscope"
    with kernelscope.record(stages=True, path=path):
        torch.compile(lambda x: (x.sin() + 1).sum(), backend="gcu")(torch.randn(3, 5))
    assert main(["stages", str(path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"kernel_\w+ +3 nodes +test_stages.py:\d+", out)
    assert main(["stages", str(path), "--kernel", "kernel_*"]) == 0
    out = capsys.readouterr().out
    assert "aten.sin.default" in out
    assert "__co__ auto kernel_" in out
    assert main(["stages", str(path), "--graph", "0/0", "--sections", "--only", "code"]) == 0
    assert "=== GENERATED CHOREO DSL CODE ===" in capsys.readouterr().out
    assert main(["stages", str(path), "--export", str(tmp_path / "out")]) == 0
    assert main(["show", str(path), "--call", "0"]) == 0
    assert "sin" in capsys.readouterr().out
