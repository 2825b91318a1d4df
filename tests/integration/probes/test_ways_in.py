"""Whichever way compiled code comes to run: its kernels are recorded, or a finding says what is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.programs.ways_in import WAYS, Way
from torch._dynamo.utils import counters

import kernelscope

DOCS = Path(__file__).parents[3] / "docs" / "coverage.md"


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way, id=re.sub(r"\W+", "-", way.title).strip("-"), marks=[pytest.mark.slow] * way.is_slow
        )
        for way in WAYS
    ],
)
def test_way_in(way: Way) -> None:
    if not way.exists:
        pytest.skip(f"this torch has no torch.{way.needs}")
    torch._dynamo.reset()
    counters.clear()  # what other tests compiled
    with kernelscope.record() as run:
        way.program()
    print(run)
    assert len(run) == way.launches
    for call in run.calls:
        assert not any(re.fullmatch(r"arg\d+", name) for name in call.arg_names), call
        assert {"out", "inout"} & set(call.roles), call
    findings = [f for f in run.findings if f.kind == way.finding]
    assert bool(findings) == bool(way.finding), run.findings
    assert all(way.says in f.message for f in findings)
    assert len(run.findings) == len(findings), run.findings


def test_generated_code_that_a_program_runs_by_itself_is_a_finding() -> None:
    torch._dynamo.reset()
    with kernelscope.record() as run:
        torch.compile(lambda x: torch.relu(x) * 2 + 1)(torch.ones(4, 8))
    (graph,) = run.graphs
    assert not run.findings
    with kernelscope.record() as run:
        module: dict[str, Any] = {"__name__": "artifact"}
        exec(compile(graph.source, "<artifact>", "exec"), module)
        module["call"]([torch.ones(4, 8)])
    (finding,) = run.findings
    assert finding.kind == "unseen-graph"
    assert __file__ in finding.message


def test_kernels_that_a_program_makes_and_launches_itself_are_a_finding() -> None:
    """With Inductor's own makers, and outside of any graph."""
    from torch._inductor.async_compile import AsyncCompile

    makers, kernels = AsyncCompile(), {"kernel": lambda x: x}
    with kernelscope.record() as run:
        makers.wait(kernels)
    (finding,) = run.findings
    assert finding.kind == "unseen-launch"
    assert __file__ in finding.message


def test_the_page_shows_this_table() -> None:
    text = DOCS.read_text().partition("<!-- ways in: begin -->")[2].partition("<!-- ways in: end -->")[0]
    rows = [line for line in text.strip().splitlines() if line.startswith("|")][2:]
    assert rows == [f"| {way.title} | {way.seen} |" for way in WAYS]
