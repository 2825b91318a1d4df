"""Which pass, and which pattern in it, made a step wrong; and the culprit that says so."""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import GraphModule

from kernelscope.probes.compiler_steps.fx_stages import Snapshot, Stage
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.reference.evaluate import CannotEvaluate

from .blame import Blame
from .difference import Difference

SENTENCES = {
    "pre-grad": "after the pre-grad passes",
    "joint": "after the joint passes",
    "post-grad": "after the post-grad passes",
    "freezing": "after freezing, with parameters as constants,",
    "partition": "in the forward and backward graphs that the joint graph was partitioned into",
    "functionalization": "in the first ATen graph, after functionalization,",
    "decomposition": "in the first ATen graph",
    "tracing": "in the first ATen graph, as AOTAutograd traced it,",
}


def first_wrong(stage: Stage, is_wrong: Callable[[GraphModule], bool]) -> Snapshot | None:
    """The first that left another result, by halving: once wrong, a graph stays wrong."""
    low, high = 0, len(stage.passes)
    found: Snapshot | None = None
    while low < high:
        middle = (low + high) // 2
        asked = ((at, _asked(is_wrong, stage.passes[at])) for at in range(middle, high))
        at, wrong = next(((at, wrong) for at, wrong in asked if wrong is not None), (high, True))
        if wrong:
            found, high = (stage.passes[at] if at < high else found), middle
        else:
            low = at + 1
    return found


def _asked(is_wrong: Callable[[GraphModule], bool], snapshot: Snapshot) -> bool | None:
    """None: a graph in between may not be whole."""
    try:
        return is_wrong(snapshot.graph)
    except CannotEvaluate:
        return None


def culprit_of_step(blame: Blame, difference: Difference, graph: str) -> Culprit:
    found = difference.verdict
    reason = f"{SENTENCES[blame.step]}{blame.words} {difference.output} has a different value: {found.reason}"
    return Culprit(
        verdict="wrong-stage",
        reason=reason,
        index=-1,
        kernel_name=blame.by or blame.step,
        kind="stage",
        argument=difference.output,
        buffer=blame.step,
        node=difference.node,
        pattern=blame.pattern,
        graph=graph,
        where=found.where,
        numbers=found.numbers,
        origin=blame.origin,
    )
