"""A run as text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..run import KernelCall, Run

_MOST_ARGS = 6


def listing(run: Run) -> str:
    """Every call on a line, grouped by graph execution."""
    return "\n".join(_lines(run))


def _lines(run: Run) -> Iterator[str]:
    info = run.info
    settings = ", ".join(f"{k}={v}" for k, v in info.settings.items()) or "defaults"
    yield (
        f"{_count(len(run), 'call')} of {_count(len(run.kernels), 'kernel')}"
        f" in {_count(len(run.graphs), 'graph')}"
        f"  (torch {info.versions.get('torch', '?')}, {settings})"
    )
    width = min(max((len(c.kernel_name) for c in run.calls), default=0), 60)
    digits = len(str(len(run)))
    for graph_call, calls in groupby(run.calls, key=lambda c: c.graph_call):
        group = list(calls)
        graph = group[0].graph
        if graph_call is not None and graph is not None:
            name = f" {graph.name}" if graph.name else ""
            yield f"graph {graph.id}{name} ({graph.direction}), step {group[0].step}"
        for call in group:
            yield call_line(call, width, digits)
    if run.findings:
        yield ""
        yield _count(len(run.findings), "finding") + ":"
        yield from (f"  {finding}" for finding in run.findings)


def call_line(call: KernelCall, width: int, digits: int) -> str:
    where = f"  {os.path.basename(call.origin.file)}:{call.origin.line}" if call.origin else ""
    nested = "  └ " if call.parent is not None else "  "
    name = f"{call.kernel_name:<{width}}"
    return f"{nested}{call.index:>{digits}} {call.kind:<6} {name}  {_arguments(call)}{where}"


def _arguments(call: KernelCall) -> str:
    roles, pre, post = call.roles, call.pre_hashes, call.post_hashes
    shown = []
    for i, arg in enumerate(call.arguments):
        if arg.tensor is None:
            continue
        dims = ",".join(map(str, arg.tensor.shape))
        mark = {"out": "→", "inout": "↔"}.get(roles[i], "")
        hashed = post.get(i) if roles[i] in ("out", "inout") else pre.get(i)
        shown.append(f"{mark}{arg.name}:{arg.tensor.short[3:].split('[')[0]}[{dims}]{_hash(hashed)}")
    more = f" +{len(shown) - _MOST_ARGS}" if len(shown) > _MOST_ARGS else ""
    return " ".join(shown[:_MOST_ARGS]) + more


def _hash(value: object) -> str:
    if value is None:
        return ""
    return f"#{value:016x}"[:9] if isinstance(value, int) else f"#{value}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
