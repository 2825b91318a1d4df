"""A recorded program, and whether it does the same as without a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters, get_compilation_metrics

import kernelscope

Program = Callable[..., Any]


def recorded(program: Program, *args: Any, **settings: Any) -> tuple[list[torch.Tensor], kernelscope.Run]:
    with kernelscope.record(**settings) as run:
        result = program(*args)
    assert not [f for f in run.findings if f.kind == "recorder-error"], run.findings
    return flat(result), run


def flat(result: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(result)
    return [t.detach().clone() for t in leaves if isinstance(t, torch.Tensor)]


def assert_unperturbed(program: Program, *args: Any) -> kernelscope.Run:
    """Bare, recorded in every way, and bare again give the same bits without another compilation."""
    bare = flat(program(*args))
    compiled = counters["stats"]["unique_graphs"]
    for values, ops in (("off", "all"), ("hash", "all"), ("hash", "graph")):
        result, run = recorded(program, *args, values=values, ops=ops)
        assert len(result) == len(bare)
        for mine, theirs in zip(result, bare, strict=True):
            assert torch.equal(mine, theirs)
    assert all(torch.equal(a, b) for a, b in zip(flat(program(*args)), bare, strict=True))
    again = counters["stats"]["unique_graphs"] - compiled
    assert not again, [metrics.recompile_reason for metrics in get_compilation_metrics()[-again:]]
    return run


def weights() -> torch.Tensor:
    return torch.linspace(-1, 1, 64).view(8, 8).clone().requires_grad_()
