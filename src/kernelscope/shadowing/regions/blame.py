"""Which step of the compiler made the compiled function compute something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from kernelscope.events import Frame
from kernelscope.shadowing.generator_state import untouched_random_numbers
from kernelscope.shadowing.steps.blame import EachOperator
from kernelscope.shadowing.steps.functionalized import differ, first_difference
from kernelscope.shadowing.steps.lines import Located, frames_of

from .eager_run import alone, parts_of
from .region import VALUES, Difference, Region


class Suspect(NamedTuple):
    """The step, empty where it is not known, and the user's line."""

    step: str = ""
    line: tuple[Frame, ...] = ()


def blame(region: Region, difference: Difference) -> Suspect:
    """The step between Dynamo's graph and the compiled code.

    Each step is compared on its own before: here none of those that could be compared was wrong.
    """
    if difference.kind == "unshared":  # no backend returns a view: AOTAutograd makes it of what was returned
        return Suspect("AOTAutograd")
    if region.eager is None or difference.kind not in VALUES:
        return Suspect()
    return _functionalization(region) or _decomposition(region) or Suspect()


def _functionalization(region: Region) -> Suspect | None:
    """Whether the traced graph computes something else once its writes are functional, in eager."""
    try:
        one, other = _run(region, None, False), _run(region, None, True)
    except Exception:  # it cannot be functionalized in this way
        return None
    if not any(differ(a, b) for a, b in zip(one, other, strict=True)):
        return None
    node = first_difference(region.module, lambda kept, is_on: _run(region, kept, is_on))
    return Suspect("functionalization", frames_of(node))


def _run(
    region: Region, interpreter: Callable[[GraphModule], Any] | None, is_functional: bool
) -> Sequence[Any]:
    """What it returns; without an interpreter, also its inputs as they are afterwards."""
    assert region.eager is not None
    values = region.eager.inputs.fresh(differentiates=False).values

    def call(*given: Any) -> Any:
        return parts_of(region.run(given, interpreter))

    with alone(), torch.no_grad(), untouched_random_numbers():
        made = (torch.func.functionalize(call) if is_functional else call)(*values)
    return [*made, *values] if interpreter is None else made


def _decomposition(region: Region) -> Suspect | None:
    assert region.eager is not None
    operators = EachOperator()
    values = region.eager.inputs.fresh(differentiates=False).values
    try:
        with torch.no_grad(), untouched_random_numbers(), operators:
            region.run(values, lambda graph: Located(graph, operators.tell))
    except Exception:  # it ran without the mode
        return None
    return Suspect(f"decomposition of {operators.wrong[0]}", operators.line) if operators.wrong else None
