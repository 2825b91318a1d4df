"""One compiled region, and one way in which it differs from the uncompiled function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from kernelscope.events import Frame
from kernelscope.shadowing.checks.verdict_record import Verdict
from kernelscope.shadowing.reference.node_kinds import can_be_left_out, effect_of, why_not_again

from .copies import Snapshot
from .eager_run import Eager

_COMMUNICATES = ("_c10d_functional", "c10d", "_dtensor", "symm_mem")


class Unjudged(Exception):
    """Why a region is not compared, in a few words."""


@dataclass(slots=True)
class Region:
    """What Dynamo compiled from one frame under one set of guards."""

    name: str  # of the user's function
    names: list[str]  # of the graph's inputs
    compile_id: str  # 0/0
    module: GraphModule  # the graph as Dynamo traced it: a copy that no pass has touched
    origin: tuple[Frame, ...] = ()
    inputs: Snapshot | None = None  # of its first execution
    eager: Eager | None = None  # the traced graph on these inputs


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the compiled function does otherwise."""

    what: str  # result 0 | input 2 after the call | gradient of input 1
    reason: str
    verdict: Verdict | None = None  # where values differ
    index: int = 0  # of the result or input
    kind: str = "result"  # result | input | gradient | layout | alias | raises


class KnownWrong(NamedTuple):
    """Culprits of another kind that were found up to some moment: later ones explain a difference."""

    steps: int  # of the compiler
    launches: int
    launch: int  # the next one's index


def refuse(region: Region, args: Sequence[Any]) -> None:
    """Raises, where it cannot be compared."""
    if torch._C._functorch.peek_interpreter_stack():
        raise Unjudged("it runs inside a transform of torch.func")
    if any(type(a).__name__ == "FakeTensor" for a in args):
        raise Unjudged("it runs on fake tensors")
    if (
        any(a.is_cuda for a in args if isinstance(a, torch.Tensor))
        and torch.cuda.is_current_stream_capturing()
    ):
        raise Unjudged("it runs while a CUDA graph is captured")
    for node in region.module.graph.nodes:
        if (effect := effect_of(node)) is not None and not can_be_left_out(effect):
            raise Unjudged(why_not_again(effect))
        if getattr(node.target, "namespace", "") in _COMMUNICATES:
            raise Unjudged("it communicates with other processes")


def ends_recomputation(error: Exception) -> bool:
    """Checkpointing ends a second forward pass in this way, as soon as it has what it needs."""
    return isinstance(error, torch.utils.checkpoint._StopRecomputationError)
