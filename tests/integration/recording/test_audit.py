"""The audit finds what runs outside of recorded calls, also where the recorder itself has a gap."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.select_algorithm import extern_kernels
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

import kernelscope
from kernelscope.probes.python_wrappers import hooked_wrapper, wrapper_calls

W = torch.ones(8, 4)


def program(x: torch.Tensor) -> torch.Tensor:
    return (x @ W).relu() * 2


def test_everything_is_inside_a_call() -> None:
    compiled = torch.compile(program)
    with kernelscope.record(audit=True, ops="all") as run:
        for _ in range(2):
            compiled(torch.ones(4, 8)).sum()
    audit = run.audit
    assert audit is not None
    assert (audit.missing, audit.outside, audit.incomplete) == (0, (), "")
    assert audit.generated == audit.generated_seen == 4
    assert audit.share_of_launches == audit.share_of_time == 1
    assert audit.launches == len(run)
    assert not run.findings


def test_the_number_that_decides_on_a_branch_is_no_launch() -> None:
    compiled = torch.compile(lambda p, x: torch.cond(p, lambda x: x.sin() * 2, lambda x: x.cos(), (x,)))
    with kernelscope.record(audit=True) as run:
        compiled(torch.tensor(True), W)
        compiled(torch.tensor(False), W)
    assert run.audit is not None
    assert (len(run), run.audit.outside, run.audit.missing) == (2, (), 0)
    assert not run.findings


@pytest.mark.parametrize("stops_early", [True, False])
def test_an_operator_at_which_checkpointing_stops_has_computed_nothing(stops_early: bool) -> None:
    layer = torch.nn.Linear(4, 4)

    def part(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(layer(x)).exp().sin()

    x = torch.ones(4, 4, requires_grad=True)
    with kernelscope.record(audit=True, ops="all") as run:
        checkpoint(part, x, use_reentrant=False, early_stop=stops_early).sum().backward()
    assert run.audit is not None
    assert run.audit.outside == ()
    # Computed once more, or not at all if that is where it stops.
    assert len(run.select(kernel="aten.sin.default")) == 2 - stops_early
    assert len(run.select(kernel="aten.exp.default")) == 2
    assert run.audit.launches == len(run)


def test_eager_operators_are_listed_where_they_are_not_recorded() -> None:
    compiled = torch.compile(program)
    with kernelscope.record(audit=True) as run:
        compiled(torch.ones(4, 8)).sum()
    audit = run.audit
    assert audit is not None
    assert {each.name for each in audit.outside} == {"aten::ones", "aten::sum"}
    assert not audit.missing
    assert 0 < audit.share_of_launches < 1
    assert not run.findings


def test_a_gap_of_the_recorder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(path: str, namespace: dict[str, Any], kernels: Mapping[str, Any]) -> bool:
        is_extern = path.startswith("extern_kernels")
        return not is_extern and wrapper_calls.is_launch(path, namespace, kernels)

    monkeypatch.setattr(hooked_wrapper, "is_launch", blind)
    monkeypatch.setattr(hooked_wrapper, "KNOWN_WRAPPERS", {})
    torch._dynamo.reset()
    compiled = torch.compile(program)
    with kernelscope.record(audit=True) as run:
        compiled(torch.ones(4, 8))
    audit = run.audit
    assert audit is not None
    assert audit.generated - audit.generated_seen == 1
    assert ("aten::mm", True) in {(each.name, each.in_compiled_code) for each in audit.outside}
    assert [f.kind for f in run.findings] == ["audit"]


def test_what_follows_an_exception_is_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("out of luck")

    torch._dynamo.reset()
    compiled = torch.compile(program)
    compiled(torch.ones(4, 8))
    monkeypatch.setattr(extern_kernels, "mm", raising)
    with kernelscope.record(audit=True) as run, pytest.raises(RuntimeError, match="out of luck"):
        compiled(torch.ones(4, 8))
    assert run.audit is not None
    assert (run.audit.generated, run.audit.generated_seen) == (1, 1)
    assert not run.findings


def test_the_programs_own_profiler_gets_its_trace(tmp_path: Path) -> None:
    x = torch.ones(4, 8)
    with kernelscope.record(audit=True, ops="all", path=tmp_path / "run") as run:
        x.sin()
        with profile() as own:
            x.cos()
    assert "aten::cos" in {event.name for event in own.events()}
    assert run.audit is not None
    assert "started a profiler" in run.audit.incomplete
    assert [f.kind for f in run.findings] == ["audit"]
    assert [call.kernel_name for call in run] == ["aten.sin.default", "aten.cos.default"]


def audited(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script.write_text("import torch\nprint('out', (torch.ones(3) + 1).sum().item())\n")
    words = [sys.executable, "-m", "kernelscope", "audit", *options, str(script)]
    return subprocess.run(words, cwd=script.parent, capture_output=True, text=True, check=False)


def test_command(tmp_path: Path) -> None:
    done = audited(tmp_path / "program.py", "--json")
    assert done.returncode == 0, done.stderr
    (part,) = json.loads(done.stdout)["parts"]
    assert part["audit"]["share_of_launches"] == 1
    assert part["audit"]["launches"] == 4


@pytest.mark.slow
def test_command_without_eager_operators(tmp_path: Path) -> None:
    done = audited(tmp_path / "program.py", "--ops", "graph")
    assert done.returncode == 0, done.stderr  # there is no compiled code that could be missing
    assert "outside of recorded calls:" in done.stdout
    assert "aten::add" in done.stdout


@pytest.mark.slow
def test_each_process_has_a_heading(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(
        "import subprocess, sys, torch\n"
        "torch.compile(torch.sin)(torch.randn(8))\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    )
    command = [sys.executable, "-m", "kernelscope", "audit", "-o", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    headings = [line for line in done.stdout.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings[0] == "two:", done.stdout
    assert len(headings) == 2, done.stdout
