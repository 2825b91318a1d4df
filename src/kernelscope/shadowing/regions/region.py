"""One compiled region, and one way in which it differs from the uncompiled function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch.fx import GraphModule

from kernelscope.events import Frame
from kernelscope.shadowing.checks.verdict_record import Verdict

from .copies import Snapshot
from .eager_run import Eager


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
    kind: str = "result"  # result | input | gradient | layout | alias


class KnownWrong(NamedTuple):
    """Culprits of another kind that were found up to some moment: later ones explain a difference."""

    steps: int  # of the compiler
    launches: int
    launch: int  # the next one's index
