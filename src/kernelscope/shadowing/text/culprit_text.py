"""One culprit as text: the first line says where, what and how wrong, the last ones what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from kernelscope.events import Frame
from kernelscope.shadowing.culprit import Culprit
from kernelscope.shadowing.verdicts import kind_of
from kernelscope.text.frames import source_line

from .how_wrong import how_wrong, shown

_VALUES = ("compiled", "eager", "float64")  # of the worst element
_NODES_SHOWN = 12
_PURPOSES = {
    "bisect": "find the part of the compiler that causes it",
    "reduce": "write the smallest script that still fails",
}
_CALLS = {"bisect": "kernelscope.bisect(fn, x)", "reduce": "kernelscope.reduce(program)"}


def headline(culprit: Culprit) -> str:
    """Which kernel, from which line, and how wrong it is."""
    kind = kind_of(culprit.verdict)
    at = f" at {_frame(culprit.origin[0])}" if culprit.origin else ""
    is_function = kind.subject == "function"
    because = f", because of {_with_article(culprit.step)}" if is_function and culprit.step else ""
    where = culprit.buffer if kind.subject == "kernel" else ""
    what = how_wrong(culprit.numbers) or where or culprit.argument
    words = f"{culprit.verdict}: {_subject(culprit)}{at} {kind.sentence}{because}"
    return words + (f": {what}" if what else "")


def _subject(culprit: Culprit) -> str:
    """What is wrong, in a few words: a kernel with its number, a pass, an operator's decomposition."""
    name, kind = culprit.kernel_name, kind_of(culprit.verdict)
    if kind.subject == "stage":
        return culprit.step
    if kind.subject == "function":
        return f"function {culprit.buffer or name}"
    subject = f"kernel #{culprit.index}" if kind.subject == "kernel" else kind.subject
    return f"{subject} {name}" + (f" ({culprit.kind})" if culprit.kind != kind.subject else "")


def _with_article(step: str) -> str:
    return f"the {step}" if " of " in step else step


def culprit_lines(culprit: Culprit, command: Sequence[str], *, verbose: bool) -> Iterator[str]:
    """One fact a line; all numbers only if `verbose`."""
    yield headline(culprit)
    for frame in culprit.origin[:2]:
        text = source_line(frame)
        yield f"  from       {_frame(frame)}" + (f"\n             {text}" if text else "")
    if what := " = ".join(filter(None, (culprit.argument, culprit.buffer))):
        element = f", worst element {list(culprit.where)}" if culprit.where is not None else ""
        yield f"  output     {what}{f' (FX node {culprit.node})' if culprit.node else ''}{element}"
    yield f"  why        {culprit.reason}"
    values = [f"{name} {shown(culprit.numbers[name])}" for name in _VALUES if name in culprit.numbers]
    if values:
        yield f"  values     {', '.join(values)}"
    if verbose:
        yield from _details(culprit)
    if (operator := culprit.own_operator) is not None:
        yield f"  operator   {operator.name} is not torch's: {operator.fault}"
        yield f"  next       {operator.remedy}; {operator.check}"
    else:
        yield from _next_steps(culprit.tools, command)


def _details(culprit: Culprit) -> Iterator[str]:
    if rest := [f"{k} {_short(v)}" for k, v in culprit.numbers.items() if k not in _VALUES]:
        yield f"  numbers    {', '.join(rest)}"
    if culprit.nodes:
        more = " …" if len(culprit.nodes) > _NODES_SHOWN else ""
        yield f"  computes   {' → '.join(culprit.nodes[:_NODES_SHOWN])}{more}"
    if culprit.joined:
        yield f"  together   with {', '.join(culprit.joined)}"
    if culprit.wrapper:
        yield f"  launched   {culprit.wrapper} ({culprit.phase}, {culprit.times} times wrong)"


def _next_steps(tools: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    """What to run next: on the same script, or from Python."""
    if not tools:
        yield "  next       report it to https://github.com/pytorch/pytorch/issues: its step is known"
    calls = {t: f"kernelscope {t} {shlex.join(command)}" if command else _CALLS[t] for t in tools}
    width = max(map(len, calls.values()), default=0)
    for i, (tool, call) in enumerate(calls.items()):
        yield f"  {'' if i else 'next':<10} {call:<{width}}  # {_PURPOSES[tool]}"


def _frame(frame: Frame) -> str:
    """With a path that is as short as it can be."""
    inside = frame.file.startswith(os.getcwd() + os.sep)
    file = os.path.relpath(frame.file) if inside else frame.file
    return str(Frame(file, frame.line, frame.function))


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
