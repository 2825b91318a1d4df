"""A result in words."""

from __future__ import annotations

from collections.abc import Iterator

from .result import BisectResult, Cause


def tell(result: BisectResult) -> str:
    return "\n".join(_lines(result))


def _lines(result: BisectResult) -> Iterator[str]:
    cause = result.cause
    if cause is not None:
        yield f"cause: {cause}"
        yield from _about(cause)
    elif result.problem:
        yield result.problem
    else:
        yield "No cause was found: none of the switches makes it pass."
    if result.failure:
        yield f"  failure    {result.failure}"
    for axis, other in result.causes.items():
        if cause is None or axis != cause.axis:
            yield f"  {'also':<10} {other}"
    for i, text in enumerate(result.workaround):
        yield f"  {'work round' if not i else '':<10} {text}"
    if cause is not None and not result.workaround and result.sought_workaround:
        yield "  work round no setting that was tried helps"
    for axis, why in result.innocent.items():
        yield f"  {'not':<10} {axis}: {why}"
    if result.runs:
        yield f"  confidence {_confidence(result)}"
        again = f", {result.resumed} of them from the journal" if result.resumed else ""
        yield f"  trials     {result.trials} in {result.seconds:.1f} s{again}"
    yield from (f"  note       {note}" for note in result.notes)
    if result.folder:
        yield f"  journal    {result.folder}"


def _about(cause: Cause) -> Iterator[str]:
    for switch in cause.switches:
        info = switch.info
        if info.get("nodes"):
            yield f"  computes   {' → '.join(info['nodes'][:12])}"
        if info.get("origin"):
            yield f"  from       {info['origin']}"
        if info.get("joined"):
            yield f"  together   with {', '.join(info['joined'])}, whose results it finishes"
        if info.get("function"):
            yield f"  function   {info['function']}"
        if info.get("target"):
            yield f"  operator   {info['target']}"
    if cause.candidates > 1:
        yield f"  among      {cause.candidates} of its kind"


def _confidence(result: BisectResult) -> str:
    often = f"it failed in {result.failed} of {result.runs} runs"
    if result.failed == result.runs:
        return f"{often}, so one run tells"
    return f"{result.confidence:.1%}: {often}, so {result.repeats} passes in a row were asked for"
