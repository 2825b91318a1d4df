"""Which step of the compiler made the compiled function compute something else."""

from __future__ import annotations

import torch

from kernelscope.shadowing.generator_state import untouched_random_numbers
from kernelscope.shadowing.steps.blame import EachOperator

from .region import Difference, Region


def blame(region: Region, difference: Difference) -> str:
    """The step between Dynamo's graph and the compiled code; empty where it is not known.

    Each step is compared on its own before: here none of those that could be compared was wrong.
    """
    if region.eager is None or difference.kind not in ("result", "input", "gradient"):
        return ""
    operators = EachOperator()
    try:
        with torch.no_grad(), untouched_random_numbers(), operators:
            region.eager.call(list(region.eager.inputs.fresh(differentiates=False).values))
    except Exception:  # it ran without the mode
        return ""
    return f"decomposition of {operators.wrong[0]}" if operators.wrong else ""
