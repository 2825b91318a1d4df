"""A result in words."""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from .result import Culprit, ShadowResult

_SHOWN = 5
_HOW = {
    "wrong-kernel": "is worse than rounding explains",
    "foreign-write": "writes to what is not its own",
    "uninitialised-read": "reads what nobody has written",
    "wrong-stage": "changes what the program computes",
    "wrong-result": "hands over something else",
}
_WHAT = {"wrong-stage": "stage", "wrong-result": "wrapper"}


def tell(result: ShadowResult) -> str:
    return "\n".join(_lines(result))


def _lines(result: ShadowResult) -> Iterator[str]:
    culprits = result.culprits
    if culprits:
        yield from _about(culprits[0])
        if len(culprits) > 1:
            yield f"and {len(culprits) - 1} more, judged by what they were given:"
            yield from (
                f"  #{c.index} {c.kernel_name} {c.argument} ({c.buffer}): {c.reason}"
                for c in culprits[1 : 1 + _SHOWN]
            )
    elif result.problem:
        yield f"Nothing can be said: {result.problem}."
    else:
        yield "Nothing is worse than rounding explains."
    counts = result.counts
    yield (
        f"{counts.launches} launches of {counts.graphs} graphs: {counts.buffers} buffers judged, "
        f"{counts.bitwise} of them equal to eager bit by bit"
        + (f", {counts.given} random ones taken as they are" if counts.given else "")
        + (f"; {counts.stages} compiler stages compared" if counts.stages else "")
        + "."
    )
    if counts.narrow:
        yield f"Judged in their own dtype, for lack of a float64 kernel: {', '.join(sorted(counts.narrow))}."
    unchecked = result.unchecked
    if unchecked:
        yield f"Not checked, neither right nor wrong ({len(unchecked)}):"
        yield from (f"  {each}" for each in unchecked[:_SHOWN])
        if len(unchecked) > _SHOWN:
            yield f"  and {len(unchecked) - _SHOWN} more"
    yield from (f"Not shadowed: {each}" for each in result.unshadowed[:_SHOWN])
    yield from result.notes


def _about(culprit: Culprit) -> Iterator[str]:
    what = _WHAT.get(culprit.verdict) or f"kernel #{culprit.index}"
    yield f"{culprit.verdict}: {what} {culprit.kernel_name} ({culprit.kind}) {_HOW.get(culprit.verdict, '')}"
    place = f", element {list(culprit.where)}" if culprit.where is not None else ""
    node = f" (FX node {culprit.node})" if culprit.node else ""
    yield f"  what       {' = '.join(filter(None, (culprit.argument, culprit.buffer)))}{node}{place}"
    yield f"  why        {culprit.reason}"
    for frame in culprit.origin[:2]:
        text = linecache.getline(frame.file, frame.line).strip()
        yield f"  from       {frame}" + (f"\n             {text}" if text else "")
    numbers = culprit.numbers
    for name in ("compiled", "eager", "float64"):
        if name in numbers:
            yield f"  {name:<10} {numbers[name]}"
    rest = {k: v for k, v in numbers.items() if k not in ("compiled", "eager", "float64")}
    if rest:
        yield "  numbers    " + ", ".join(f"{k} {_short(v)}" for k, v in rest.items())
    if culprit.nodes:
        yield f"  computes   {' → '.join(culprit.nodes[:12])}" + (" …" if len(culprit.nodes) > 12 else "")
    if culprit.joined:
        yield f"  together   with {', '.join(culprit.joined)}"
    if culprit.wrapper:
        yield f"  launched   {culprit.wrapper} ({culprit.phase}, {culprit.times} times wrong)"


def _short(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
