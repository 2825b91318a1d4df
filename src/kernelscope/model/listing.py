"""A run as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kernelscope.events import Finding, RunInfo
from kernelscope.text.amounts import call_counts, counted
from kernelscope.text.frames import short_frame
from kernelscope.text.hashes import short_hash
from kernelscope.text.visible import one_line

from .call import KernelCall

_WIDEST_NAME = 60
_ROLE_MARKS = {"out": "→", "inout": "↔"}


def heading(info: RunInfo, calls: int, kernels: int, graphs: int) -> str:
    settings = ", ".join(f"{k}={v}" for k, v in info.settings.items()) or "defaults"
    rank = f"rank {info.rank} of {info.world_size}, " if info.world_size > 1 else ""
    return one_line(
        f"{call_counts(calls, kernels, graphs)}  ({rank}torch {info.versions.get('torch', '?')}, {settings})"
    )


def lines(calls: list[KernelCall], findings: Sequence[Finding]) -> Iterator[str]:
    """Calls by graph call, then findings. → written, ↔ read and written, #hash, (statistics)."""
    yield from call_lines(calls)
    if findings:
        yield ""
        yield counted(len(findings), "finding") + ":"
        yield from (f"  {finding}" for finding in findings)


def call_lines(calls: list[KernelCall]) -> Iterator[str]:
    """A line for each call, under a line for each graph call."""
    cells = [(str(c.index + 1), c.kind, short_frame(c.origin), c.kernel_name) for c in calls]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for graph_call, group in groupby(calls, key=lambda c: c.graph_call):
        members = list(group)
        graph = members[0].graph
        if graph_call is not None and graph is not None:
            name = f" {graph.name}" if graph.name else ""
            replay = f", replay {members[0].replay}" if members[0].replay is not None else ""
            yield f"graph {graph.id}{name} ({graph.direction}), step {members[0].step}{replay}"
        for call in members:
            yield _call_line(call, widths)


def _call_line(call: KernelCall, widths: list[int]) -> str:
    name = ("└ " if call.parent is not None else "") + call.kernel_name
    line = f"  {call.index:>{widths[0]}}  {call.kind:<{widths[1]}}  {short_frame(call.origin):<{widths[2]}}"
    line = f"{line}  {name:<{min(widths[3], _WIDEST_NAME)}}  {_arguments(call)}".rstrip()
    line += "  (flight recorder only)" if call.is_unwritten else ""
    return line + (f"  raised {one_line(call.error)}" if call.error else "")


def _arguments(call: KernelCall) -> str:
    roles, pre, post = call.roles, call.pre_hashes, call.post_hashes
    pre_stats, post_stats = call.pre_stats, call.post_stats
    shown = []
    for i, arg in enumerate(call.arguments):
        if arg.tensor is not None:
            written = roles[i] in _ROLE_MARKS or arg.returned
            hashed = post.get(i) if written else pre.get(i)
            stats = post_stats.get(i) if written else pre_stats.get(i)
            dims = ",".join(map(str, arg.tensor.shape))
            dtype = arg.tensor.short_dtype
            told = "" if stats is None else f"({stats})"
            shown.append(
                f"{_ROLE_MARKS.get(roles[i], '')}{arg.name}:{dtype}[{dims}]{short_hash(hashed)}{told}"
            )
    return " ".join(shown)
