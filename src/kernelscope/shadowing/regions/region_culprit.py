"""What is said of a compiled function that differs from the uncompiled one."""

from __future__ import annotations

from collections.abc import Sequence

from kernelscope.shadowing.culprit import Culprit

from .region import Difference, Region

VERDICT = "wrong-function"


def culprit_of_region(region: Region, differences: Sequence[Difference], step: str) -> Culprit:
    first = differences[0]
    reason = f"{first.what} differs from the uncompiled function: {first.reason}"
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
        origin=region.origin,
    )
