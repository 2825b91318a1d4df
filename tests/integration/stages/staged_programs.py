"""Recorded training steps, the lines of a test that records, and the schema of the recorded stages."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import torch
from tests.programs import blocks

import kernelscope

ROOT = Path(__file__).parents[3]

SCHEMA = json.loads((ROOT / "docs" / "stages.schema.json").read_text())


def recorded(name: str, path: Path | None = None, **settings: Any) -> kernelscope.Run:
    torch._dynamo.reset()
    step = blocks.training_step(name)
    with kernelscope.record(stages=True, path=path, **settings) as run:
        step()
    return run


def line_of(text: str) -> int:
    """Of the test that calls this."""
    lines = Path(inspect.stack()[1].filename).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if line.strip() == text)


def recorded_hashes(stages: bool) -> list[Any]:
    torch._dynamo.reset()
    step = blocks.training_step("mlp")
    with kernelscope.record(values="hash", stages=stages) as run:
        step()
    return [(c.kernel_name, c.site.kernel.source_hash, c.post_hashes) for c in run.calls]
