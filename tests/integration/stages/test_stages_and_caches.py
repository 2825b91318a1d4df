"""Stages where compile caches answer, exported code, and programs that recording stages does not change."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from tests.integration.stages.staged_programs import SCHEMA, line_of, recorded_hashes
from tests.support.warm_python import WarmPython
from torch._inductor.codecache import FxGraphHashDetails
from torch._inductor.runtime.cache_dir_utils import cache_dir

import kernelscope
from kernelscope.cli import main
from kernelscope.stages import StagedGraph


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
    for kept in (Path(cache_dir()) / "kernelscope-stages").iterdir():
        kept.unlink()  # then Inductor's own text is shown, which names the lines of `one`
    torch._dynamo.reset()
    with kernelscope.record(stages=True) as run:
        torch.compile(other)(torch.ones(48))
    [graph] = run.stages
    assert graph.made == "cached-in-part"
    shown = graph.stages["post_grad"].text
    assert f":{line_of(text)} in other, code: {text}" in shown
    assert "return x.exp2() * 5" not in shown


def test_nothing_is_changed(cache: Path, leftovers: Callable[[], list[str]]) -> None:
    """Same kernels, same results, and torch as it was."""
    from torch._inductor import config

    before = config.get_config_copy()
    bare = recorded_hashes(stages=False)
    assert recorded_hashes(stages=True) == bare
    assert config.get_config_copy() == before
    assert leftovers() == []
