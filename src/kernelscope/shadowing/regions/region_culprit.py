"""What is said of a compiled function that differs from the uncompiled one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelscope.probes.launch import Launch
from kernelscope.shadowing.culprit import Culprit, culprit_of
from kernelscope.text.operator_names import misdescribed_operator

from .blame import Suspect
from .eager_run import alone
from .region import Difference, Region, Unjudged

VERDICT = "wrong-function"


def suspect_of_region(suspects: Sequence[Culprit], region: Region, first: Difference) -> Culprit | None:
    """The first kernel that left what eager does not, because it does not round, if NaN came of it."""
    made = first.verdict.numbers.get("compiled") if first.verdict is not None else None
    if not suspects or not isinstance(made, float) or math.isfinite(made):
        return None
    kernel = suspects[0]
    reason = f"{kernel.reason}. Because of it, {first.what} of {region.name} is not finite"
    return replace(kernel, reason=reason)


def failure_of_compiled_code(error: Exception, run_eager: Callable[[], Any]) -> list[Difference]:
    """None, if the uncompiled function raises the same."""
    name = type(error).__name__
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        raise Unjudged(f"it raised {name}")  # maybe because of our copies
    with alone():
        try:
            run_eager()
        except Exception as other:
            if type(other) is not type(error):
                raise Unjudged(f"it raised {name}, and eager {type(other).__name__}") from other
            return []
    first = str(error).partition("\n")[0][:200]
    reason = f"compiled, it raises {name}: {first}, and uncompiled it does not"
    if operator := misdescribed_operator(str(error)):
        reason += f". Error in op: {operator}"
    return [Difference(f"it raises {name}", reason, kind="raises")]


def culprit_of_region(region: Region, differences: Sequence[Difference], suspect: Suspect) -> Culprit:
    first, step = differences[0], suspect.step
    reason = f"{first.what} differs from the uncompiled function: {first.reason}"
    reason = first.reason if first.kind == "raises" else reason
    if more := [each.what for each in differences[1:]]:
        reason += f" (and {', '.join(more[:3])}{', …' if len(more) > 3 else ''})"
    numbers = first.verdict.numbers if first.verdict is not None else {}
    return Culprit(
        verdict=VERDICT,
        reason=f"{reason}. Step: {step}" if step else reason,
        index=-1,
        kernel_name=step or region.name,
        kind="function",
        argument=first.what,
        buffer=region.name if step else "",
        phase="backward" if first.kind == "gradient" else "forward",
        graph=region.compile_id,
        where=first.verdict.where if first.verdict is not None else None,
        numbers=numbers,
        origin=suspect.line or region.origin,
    )


def with_sides_swapped(found: Difference) -> Difference:
    """It was found with what is wrong in the place of eager."""
    if found.verdict is None:
        return found
    numbers = dict(found.verdict.numbers)
    if "compiled" in numbers and "eager" in numbers:
        numbers = {"compiled": numbers["eager"], "eager": numbers["compiled"]}
    return replace(found, verdict=replace(found.verdict, numbers=numbers))


class FailedLaunch:
    """The launch that raised last; the exception is not kept, whose traceback has the launch's arguments."""

    def __init__(self) -> None:
        self._raised: tuple[int, str] | None = None
        self._culprit: Culprit | None = None

    def note(self, launch: Launch, index: int, graph: str) -> None:
        error = launch.error
        if isinstance(error, Exception):
            self._raised = id(error), str(error)
            name = type(error).__name__
            words = f"it raises {name}"
            self._culprit = culprit_of(launch, index, "wrong-kernel", words, argument=words, graph=graph)

    def that_raised(self, error: Exception) -> Culprit | None:
        """With nothing known against what it was given, that launch is to blame."""
        is_same = self._raised == (id(error), str(error))
        return self._culprit if is_same else None
