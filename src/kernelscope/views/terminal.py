"""Tables and blocks of text for a terminal."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kernelscope.events import Site
from kernelscope.model.call import KernelCall
from kernelscope.stages.records import FxOrigin
from kernelscope.text.amounts import duration
from kernelscope.text.frames import innermost
from kernelscope.text.hashes import full_hash, short_hash
from kernelscope.text.visible import one_line
from kernelscope.text.widths import columns_of, fitted_widths, padded, shortened

_BUILT_IN = re.compile(r"<built-in function (\w+)>")  # as Python prints getitem


def room() -> int:
    """Columns of the terminal that is written to; 0 where all is printed: into a pipe, and with --wide."""
    return int(getattr(sys.stdout, "columns", 0))


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Sequence[int] = (),
    *,
    indent: int = 0,
    whole: Sequence[int] = (),
) -> Iterator[str]:
    """Columns as wide as they need to be, or as the terminal lets them; those in `right` are aligned right.

    A text that does not fit loses its middle, those in `whole` last: names that the user has to type.
    `indent` columns at the left are left for the caller.
    """
    texts = [["" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
    lines = [list(head), *texts] if head else texts
    widths = [max(map(columns_of, column)) for column in zip(*lines, strict=True)]
    if room():
        free = room() - indent - 2 * (len(widths) - 1)
        others = [i for i in range(len(widths)) if i not in whole]
        fitted = fitted_widths([widths[i] for i in others], free - sum(widths[i] for i in whole))
        widths = [fitted[others.index(i)] if i in others else width for i, width in enumerate(widths)]
        widths = fitted_widths(widths, free)
        if head and sum(widths) + 2 * (len(widths) - 1) > room() - indent:
            yield from _records(head, texts)
            return
    for line in lines:
        cells = [
            padded(shortened(c, w), w, right=i in right)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _records(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A line for each cell: a table of more columns than there is room for."""
    width = max(map(columns_of, head))
    for number, row in enumerate(rows):
        yield f"row {number}"
        yield from (f"  {padded(name, width)}  {cell}" for name, cell in zip(head, row, strict=True) if cell)


def call_block(call: KernelCall, saved: dict[tuple[int, str], str]) -> Iterator[str]:
    """Everything about one call."""
    yield f"call {call.index}  [{call.kind}] {call.kernel_name}"
    graph = call.graph
    facts = {
        "at": call.origin,
        "graph": f"{graph.id} {graph.name} ({graph.direction}), graph call {call.graph_call}"
        if graph
        else None,
        "step": f"{call.step}, {call.phase}",
        "producer": call.producer,
        "ranks": call.collective,
        "grid": call.grid,
        "config": ", ".join(f"{k}={v}" for k, v in call.config.items()) or None,
        "device": call.device + (f", stream {call.stream:#x}" if call.stream else ""),
        "time": duration(call.time) or None,
        "inside": None if call.parent is None else f"call {call.parent}",
        "replay": call.replay,
        "wrapper": "{}:{}".format(*call.wrapper_line) if call.wrapper_line[0] else None,
        "raised": call.error or None,
    }
    yield from table([], [(f"  {k}", v) for k, v in facts.items() if v not in (None, "")])
    if call.arguments:
        yield "  arguments"
        rows = _arguments(call, saved)
        yield from (f"    {line}" for line in table(["", "", "", "before", "after"], rows, indent=4))
    statistics = list(_statistics(call))
    if statistics:
        yield "  statistics"
        yield from (f"    {line}" for line in table(["", "before", "after"], statistics, indent=4))
    if call.computed:
        yield "  computes"
        yield from (f"    {line}" for line in table([], node_rows(call.computed), indent=4))
    frames = call.stack[1:]
    if frames:
        yield "  called from"
        yield from (f"    {frame}" for frame in frames)


def _arguments(call: KernelCall, saved: dict[tuple[int, str], str]) -> Iterator[tuple[str, ...]]:
    roles, pre, post, values, empty = (
        call.roles, call.pre_hashes, call.post_hashes, call.args, call.uninitialised
    )  # fmt: skip
    changed = call.changed_args
    for i, arg in enumerate(call.arguments):
        name = f"{arg.name} = {arg.wrapper_name}" if arg.wrapper_name not in ("", arg.name) else arg.name
        if arg.tensor is None:
            yield name, roles[i], str(values[i]), "", ""
            continue
        spec = arg.tensor
        shape = f"{spec.text} stride {list(spec.stride)}"
        if room() and tuple(spec.stride) == _dense_strides(spec.shape):
            shape = spec.text
        before = "uninitialised" if i in empty else _value(pre.get(i), saved.get((i, "before")))
        after = _value(post.get(i), saved.get((i, "after"))) + (" changed" if i in changed else "")
        yield name, roles[i], shape, before, after


def _dense_strides(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Of a tensor whose rows lie one after the other; nothing for sizes that are not numbers."""
    if not all(isinstance(size, int) for size in shape):
        return ()
    return tuple(math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape)))


def node_rows(nodes: Sequence[FxOrigin]) -> Iterator[tuple[str, ...]]:
    """Each post-grad node: what it is, what it was before autograd, and the user's line."""
    for node in nodes:
        before = f"← {', '.join(node.pre_grad)}" if node.pre_grad else ""
        line = str(node.frames[0]) if node.frames and not room() else innermost(node.frames)
        target = _BUILT_IN.sub(r"\1", node.target)
        yield node.name, target, before, line if node.frames else ""


def _statistics(call: KernelCall) -> Iterator[tuple[str, ...]]:
    pre, post = call.pre_stats, call.post_stats
    for i in sorted(pre.keys() | post.keys()):
        before, after = pre.get(i), post.get(i)
        yield call.arg_names[i], str(before or ""), "unchanged" if before == after else str(after or "")


def _value(value: Any, file: str | None) -> str:
    shown = "" if value is None else short_hash(value) if room() else str(full_hash(value))
    return f"{shown} {file}".strip() if file and not file.startswith(shown or "?") else file or shown


def time_rows(times: list[tuple[Site, int, int, int | None]]) -> Iterator[tuple[str, ...]]:
    """Per site: calls, total, share, mean, GB/s where the bytes are known."""
    total = sum(nanoseconds for _, _, nanoseconds, _ in times) or 1
    for site, calls, nanoseconds, moved in times:
        rate = f"{moved * calls / nanoseconds:.1f}" if moved and nanoseconds else ""
        where = innermost(site.origin)
        yield (
            duration(nanoseconds / 1e9), f"{100 * nanoseconds / total:.1f}%", f"{calls:,}",
            duration(nanoseconds / 1e9 / calls), rate, site.kernel.kind, where, site.kernel.name,
        )  # fmt: skip
