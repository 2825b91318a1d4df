"""Stages of graphs that run on a GPU: Triton kernels to their nodes and lines, and their configs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.programs import blocks
from tests.support import stage_checks

import kernelscope
from kernelscope.stages.records import TimedConfig

PROGRAM = Path(blocks.__file__)


def recorded(name: str, path: Path) -> kernelscope.Run:
    torch._dynamo.reset()
    step = blocks.training_step(name, "cuda")
    with kernelscope.record(stages=True, path=path) as run:
        step()
    return run


@pytest.mark.parametrize("name", blocks.MODELS)
def test_every_kernel_leads_to_its_nodes_and_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    for place, made in (("cold", "compiled"), ("warm", "cached")):
        run = recorded(name, tmp_path / place)
        assert not [f for f in run.findings if f.kind in ("recorder-error", "stage-hook-missing")]
        assert [(g.direction, g.made) for g in run.stages] == [("forward", made), ("backward", made)]
        for graph in run.stages:
            assert any(k.language == "triton" for k in graph.kernels)
            stage_checks.check_graph(graph, PROGRAM)
        stage_checks.check_calls(run, PROGRAM)


def test_configs_that_were_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    x = torch.randn(4096, 512, device="cuda")
    with kernelscope.record(stages=True) as run:
        torch.compile(lambda x: x.softmax(-1), mode="max-autotune-no-cudagraphs")(x)
    candidates = [c for c in run.compiled if isinstance(c, TimedConfig)]
    assert len(candidates) > 1
    assert sum(c.chosen for c in candidates) >= 1
