"""Calls for a terminal: one line each that fits, by step, phase and graph, with repetitions folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kernelscope.model.call import KernelCall
from kernelscope.text.amounts import counted, duration
from kernelscope.text.frames import short_frame
from kernelscope.text.visible import one_line
from kernelscope.text.widths import columns_of, fitted_widths, padded, shortened

_LONGEST_PATTERN = 60  # calls of a block that is repeated, such as a layer
_ROLE_MARKS = {"out": "→", "inout": "↔"}
_Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Calls one after the other of one graph call, or between graph calls in one phase."""

    title: str
    calls: list[KernelCall]
    keys: tuple[int, ...]  # equal numbers for calls that look alike


def folded_lines(calls: Sequence[KernelCall], notable: set[int], width: int, *, cut: bool) -> Iterator[str]:
    """Calls in `notable` are never folded; with `cut`, more calls follow those that are given."""
    numbers: dict[object, int] = {}
    steps = [
        (step, _groups(list(members), notable, numbers)) for step, members in groupby(calls, lambda c: c.step)
    ]
    widths = _widths([_row(c) for c in calls], width)
    shown: list[_Group] | None = None
    position = 0
    while position < len(steps):
        step, groups = steps[position]
        same = _same_steps(steps, position, shown, cut=cut)
        if same:
            yield _same_line(steps[position : position + same], steps[position - 1][0])
            position += same
            continue
        total = [call for group in groups for call in group.calls]
        yield _fit(f"step {step}  {counted(len(total), 'call')}{_sum_of_times(total)}", width)
        for group in groups:
            if group.title:
                yield _fit(f" {group.title}", width)
            yield from _group_lines(group, widths, width)
        shown, position = groups, position + 1


def _groups(calls: list[KernelCall], notable: set[int], numbers: dict[object, int]) -> list[_Group]:
    found = []
    for (_, phase), members in groupby(calls, lambda c: (c.graph_call, c.phase)):
        group = list(members)
        graph = group[0].graph
        title = phase if graph is None else f"{phase}, graph {graph.id} {graph.name}".rstrip()
        if group[0].replay is not None:
            title += ", replayed"
        keys = tuple(numbers.setdefault(_key(c, notable), len(numbers)) for c in group)
        found.append(_Group(title, group, keys))
    return found


def _key(call: KernelCall, notable: set[int]) -> object:
    if call.index in notable or call.error or call.is_unwritten:
        return call.index  # like no other
    return call.site.kernel.id, call.kernel_name, call.origin, call.parent is None


def _same_steps(
    steps: list[tuple[int, list[_Group]]], position: int, shown: list[_Group] | None, *, cut: bool
) -> int:
    """How many steps from here on make the calls of the step before."""
    if shown is None:
        return 0
    wanted = [(g.title, g.keys) for g in shown]
    same = 0
    for place in range(position, len(steps)):
        found = [(g.title, g.keys) for g in steps[place][1]]
        is_cut = cut and place == len(steps) - 1
        if found != wanted and not (is_cut and _begins(wanted, found)):
            break
        same += 1
    return same


def _begins(wanted: list[tuple[str, tuple[int, ...]]], found: list[tuple[str, tuple[int, ...]]]) -> bool:
    """Whether a step that was cut begins as the wanted one."""
    *whole, (title, keys) = found
    return (
        len(found) <= len(wanted)
        and whole == wanted[: len(whole)]
        and wanted[len(whole)][0] == title
        and wanted[len(whole)][1][: len(keys)] == keys
    )


def _same_line(steps: list[tuple[int, list[_Group]]], before: int) -> str:
    calls = [call for _, groups in steps for group in groups for call in group.calls]
    first, last = steps[0][0], steps[-1][0]
    which = f"step {first}" if first == last else f"steps {first} to {last}"
    between = _range(calls[0].index, calls[-1].index)
    return f"{which}  the same kernels as step {before}: {between}{_sum_of_times(calls)}"


def _range(first: int, last: int) -> str:
    return f"call {first}" if first == last else f"calls {first} to {last}"


def _sum_of_times(calls: list[KernelCall]) -> str:
    times = [call.time for call in calls if call.time is not None]
    return f", {duration(sum(times))}" if times else ""


def _group_lines(group: _Group, widths: list[int], width: int) -> Iterator[str]:
    position = 0
    while position < len(group.keys):
        length, times = _repeated(group.keys, position)
        block = group.calls[position : position + length]
        if length == 1 and times > 1:
            last = group.calls[position + times - 1]
            yield _line((*_row(block[0])[:-1], f"×{times}, to call {last.index}"), widths, width)
        else:
            for call in block:
                yield _line(_row(call), widths, width)
                if call.error:
                    yield _fit(f"    raised {one_line(call.error)}", width)
            if times > 1:
                rest = group.calls[position + length : position + length * times]
                between = _range(rest[0].index, rest[-1].index)
                yield _fit(f"    these {length} calls {times - 1} more times: {between}", width)
        position += length * times


def _repeated(keys: tuple[int, ...], start: int) -> tuple[int, int]:
    """The length of the block that begins here, and how often it stands here: what saves most lines."""
    best = (1, 1)
    for length in range(1, min(_LONGEST_PATTERN, (len(keys) - start) // 2) + 1):
        if keys[start] != keys[start + length]:
            continue
        block = keys[start : start + length]
        times = 1
        while keys[start + times * length : start + (times + 1) * length] == block:
            times += 1
        if length * (times - 1) > best[0] * (best[1] - 1):
            best = (length, times)
    return best


def _row(call: KernelCall) -> _Row:
    name = ("└ " if call.parent is not None else "") + call.kernel_name
    time = duration(call.time)
    cells = (str(call.index), call.kind, short_frame(call.origin), name, time, _written(call))
    return tuple(map(one_line, cells))


def _written(call: KernelCall) -> str:
    """What it writes: the first tensor, and how many more."""
    if call.is_unwritten:
        return "(flight recorder only)"
    roles = call.roles
    written = [i for i, a in enumerate(call.arguments) if a.tensor is not None and roles[i] in _ROLE_MARKS]
    if not written:
        return ""
    first = written[0]
    spec = call.arguments[first].tensor
    assert spec is not None
    dims = ",".join(map(str, spec.shape))
    more = f" +{len(written) - 1}" if len(written) > 1 else ""
    return f"{_ROLE_MARKS[roles[first]]}{spec.short_dtype}[{dims}]{more}"


def _widths(rows: list[_Row], width: int) -> list[int]:
    if not rows:
        return []
    wanted = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    wanted[-1] = max(wanted[-1], len("×4, to call 1000"))
    used = sum(w > 0 for w in wanted)
    index, kind, where, name, time, written = wanted
    where = min(where, max(width // 6, 12))
    written = min(written, max(width // 5, 16))
    [name] = fitted_widths([name], width - 2 * used - index - kind - where - time - written, least=12)
    return [index, kind, where, name, time, written]


def _line(row: _Row, widths: list[int], width: int) -> str:
    cells = [
        padded(shortened(text, w), w, right=place in (0, 4))
        for place, (text, w) in enumerate(zip(row, widths, strict=True))
        if w
    ]
    return _fit("  " + "  ".join(cells).rstrip(), width)


def _fit(line: str, width: int) -> str:
    return shortened(one_line(line), width)
