"""gcu kernels in a recording: calls like all others."""

from __future__ import annotations

import torch
from examples.gcu_models import TransformerBlock
from torch import nn

import kernelscope


def test_training_step_is_recorded() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    compiled = torch.compile(model, backend="gcu", fullgraph=True)
    x = torch.randn(5, 8)
    bare = compiled(x)
    bare.sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with kernelscope.record(values="hash") as run:
        out = compiled(x)
        out.sum().backward()
    assert torch.equal(out, bare)
    for p, grad in zip(model.parameters(), expected, strict=True):
        assert p.grad is not None
        assert torch.equal(p.grad, grad)
    calls = list(run.calls)
    assert {c.kind for c in calls} == {"gcu"}
    assert {c.producer for c in calls} == {"gcu"}
    assert {c.phase for c in calls} == {"forward", "backward"}
    assert [g.direction for g in {c.graph.id: c.graph for c in calls}.values()] == ["forward", "backward"]
    assert not run.findings
    for call in calls:
        assert call.source.startswith("__co__ ")
        assert "test_recording.py" in str(call.origin)
        assert set(call.roles) == {"in", "out"}
        for i, role in enumerate(call.roles):
            assert i in call.post_hashes
            assert (i in call.pre_hashes) == (role == "in")  # what it writes was uninitialised
    first = calls[0]
    assert first.arg_names[-1] == "addmm"
    assert first.graph.name in first.kernel_name


def test_same_inputs_same_hashes_and_the_list_reads_well() -> None:
    compiled = torch.compile(lambda x: x.softmax(-1) * 2, backend="gcu")
    x = torch.randn(4, 6)
    runs = []
    for _ in range(2):
        with kernelscope.record(values="hash") as run:
            compiled(x)
        runs.append(run)
    first, second = (next(iter(r.calls)) for r in runs)
    assert first.pre_hashes == second.pre_hashes
    assert first.post_hashes == second.post_hashes
    assert " gcu " in str(runs[0])
    assert "→" in str(runs[0])


def test_what_aten_does_is_recorded_as_such() -> None:
    compiled = torch.compile(TransformerBlock(128, 4), backend="gcu")
    with torch.no_grad(), kernelscope.record() as run:
        compiled(torch.randn(2, 64, 128))
    kinds = [(c.kind, c.kernel_name) for c in run.calls]
    assert ("extern", "aten.addmm.default") in kinds
    assert any(kind == "gcu" for kind, _ in kinds)
    assert all(c.producer == "gcu" for c in run.calls)


def test_dynamic_shapes_and_selection() -> None:
    compiled = torch.compile(lambda x: (x * 2).relu(), backend="gcu", dynamic=True)
    with kernelscope.record(kind="gcu") as run:
        for rows in (3, 7):
            compiled(torch.randn(rows, 4))
    assert [c.kind for c in run.calls] == ["gcu", "gcu"]
    assert [str(c.args[0]) for c in run.calls] == ["t: f32[3, 4]", "t: f32[7, 4]"] or [
        c.args[0].shape for c in run.calls
    ] == [(3, 4), (7, 4)]
