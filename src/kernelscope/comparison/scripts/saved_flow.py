"""A candidate run in a folder: another process reads it. Numbers as bytes, everything else as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from kernelscope.comparison.candidate import CandidateRun
from kernelscope.comparison.flow.calls_and_values import Call, Flow, Value
from kernelscope.comparison.flow.kept_values import KeptValues, Sketch
from kernelscope.events import Frame

_CALLS, _VALUES = "calls.json", "values.safetensors"


def save(folder: Path, run: CandidateRun) -> None:
    kept = run.kept
    form = {
        "calls": [asdict(call) for call in run.flow.calls],
        "values": [asdict(value) for value in run.flow.values],
        "replaced": run.flow.replaced,
        "sketches": {number: asdict(sketch) for number, sketch in kept.sketches.items()},
        "failures": run.failures,
    }
    (folder / _CALLS).write_text(json.dumps(form), encoding="utf-8")
    save_file({str(n): t.reshape(-1).view(torch.uint8) for n, t in kept.tensors.items()}, folder / _VALUES)


def load(folder: Path) -> CandidateRun:
    form = json.loads((folder / _CALLS).read_text(encoding="utf-8"))
    run = CandidateRun()
    run.flow, run.kept = Flow(), KeptValues()
    run.flow.calls = [_call(each) for each in form["calls"]]
    run.flow.values = [_value(each) for each in form["values"]]
    run.flow.replaced = {int(number): tuple(each) for number, each in form["replaced"].items()}
    run.failures = list(form["failures"])
    run.kept.sketches = {int(number): Sketch(**each) for number, each in form["sketches"].items()}
    for name, data in load_file(folder / _VALUES).items():
        value = run.flow.values[int(name)]
        run.kept.tensors[int(name)] = data.view(getattr(torch, value.dtype)).reshape(value.shape)
    return run


def _call(form: dict[str, Any]) -> Call:
    lists = {name: tuple(form[name]) for name in ("reads", "nodes", "parts")}
    lists["numbers"] = tuple((name, number) for name, number in form["numbers"])
    return Call(**(form | lists | {"origin": tuple(Frame(**frame) for frame in form["origin"])}))


def _value(form: dict[str, Any]) -> Value:
    return Value(**(form | {name: tuple(form[name]) for name in ("shape", "sources")}))
