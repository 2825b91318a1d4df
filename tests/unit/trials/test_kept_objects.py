"""A script that is run again makes the same classes, so that what Dynamo compiled for them is found."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from kernelscope.trials.checks import PredicateCheck
from kernelscope.trials.in_process import InProcessTrials
from kernelscope.trials.outcome import FAILED
from kernelscope.trials.programs import Script
from kernelscope.trials.settings import Settings

SCRIPT = """
from dataclasses import dataclass
from torch import nn
import torch

class Base(nn.Module):
    times = 2
    {more}
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

class Model(Base):
    def forward(self, x):
        return self.linear(x).relu() * self.times

def local():
    class Inner:
        pass
    return Inner

@dataclass
class Plan:
    layers: int = 1

first, second = local(), local()
plan = Plan(3)
model = torch.compile(Model(), backend="{backend}")
y = model(torch.ones(2, 4))
was, Model.times, Model.added = Model.times, 5, True
"""


def script(folder: Path, more: str = "", backend: str = "eager") -> Script:
    path = folder / "program.py"
    path.write_text(SCRIPT.format(more=more, backend=backend))
    return Script([str(path)])


def test_a_class_stays_the_same_and_is_as_it_was(tmp_path: Path) -> None:
    program = script(tmp_path)
    before = dict(program())
    after = program()
    assert after["Model"] is before["Model"]
    assert after["was"] == 2
    assert (after["first"], after["second"]) == (before["first"], before["second"])
    assert after["first"] is not after["second"]
    assert after["plan"] == before["plan"]
    assert __build_class__ is sys.modules["builtins"].__build_class__


def test_modules_beside_the_script_are_executed_again_in_the_same_objects(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from .layer import Layer\ncount = [0]\n")
    (tmp_path / "parts" / "layer.py").write_text(
        "from torch import nn\n\nclass Layer(nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
    )
    (tmp_path / "program.py").write_text(
        "import torch, parts\nparts.count[0] += 1\ncount = parts.count[0]\n"
        "x = torch.compile(parts.Layer(), backend='eager')(torch.ones(2))\n"
    )
    program = Script([str(tmp_path / "program.py")])
    first = dict(program())
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    second = program()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before, "compiled again"
    assert first["count"] == second["count"] == 1, "what they keep begins anew"
    assert second["parts"] is first["parts"]
    assert second["parts"].Layer is first["parts"].Layer
    assert "parts" not in sys.modules
    assert not any(type(finder).__name__ == "KeptModules" for finder in sys.meta_path)


def test_a_library_is_not_the_programs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it lies beside the script, as in a checkout of it: it keeps what it has."""
    package = tmp_path / "some_library"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "late.py").write_text("state = []")
    (tmp_path / "program.py").write_text("import some_library.late as late\nlate.state.append(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "some_library", importlib.import_module("some_library"))
    program = Script([str(tmp_path / "program.py")])
    program()
    assert program()["late"].state == [1, 1]
    monkeypatch.delitem(sys.modules, "some_library.late")


def test_a_class_with_something_that_can_change_is_made_anew(tmp_path: Path) -> None:
    program = script(tmp_path, more="seen = []")
    before = dict(program())
    after = program()
    assert after["Base"] is not before["Base"]
    assert after["Model"] is not before["Model"]  # its base is another one
    assert after["Base"].seen == []


@pytest.mark.parametrize(("more", "compiles_again"), [("", False), ("seen = []", True)])
def test_every_run_is_compiled(
    tmp_path: Path, more: str, compiles_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than Dynamo compiles one function again."""
    ran: list[int] = []
    compiled: list[GraphModule] = []

    def backend(module: GraphModule, inputs: list[Any]) -> Any:
        compiled.append(module)

        def run(*given: Any) -> Any:
            ran.append(len(compiled))
            return module(*given)

        return run

    registry = torch._dynamo.backends.registry
    monkeypatch.setitem(registry._COMPILER_FNS, "kept_classes_test", backend)
    monkeypatch.setitem(registry._BACKENDS, "kept_classes_test", None)
    runs = torch._dynamo.config.recompile_limit + 4
    trials = InProcessTrials(
        script(tmp_path, more, "kept_classes_test"), PredicateCheck(lambda names: True), tmp_path / "caches"
    )
    (tmp_path / "caches").mkdir()
    try:
        outcomes = [trials.run(Settings()) for _ in range(runs)]
    finally:
        trials.close()
    assert [outcome.kind for outcome in outcomes] == [FAILED] * runs
    assert len(ran) == runs
    assert len(compiled) == (runs if compiles_again else 1)
