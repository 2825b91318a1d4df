"""The present program's lines for a graph out of Inductor's cache, which keeps those of the first one.

An equal graph may have been compiled by another program, by another function, or before the file was edited.
Dynamo traces the present program anew in each process. Both graphs compute the same, so their lines
correspond: function by function from the outermost call inwards, and in each function by text and order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kernelscope.probes.origins import TRACE_LINE

_LOCATION = re.compile(
    r"File: (?P<file>.+?):(?P<line>\d+) in (?P<function>[^,\n]+?)(?:, code: (?P<text>[^\n]*))?$", re.MULTILINE
)
_COMMENT = re.compile(rf"^[ \t]*# [^\n]*?{_LOCATION.pattern}\n?", re.MULTILINE)


class Line(NamedTuple):
    """A line in a stack, with its text."""

    file: str
    line: int
    function: str
    text: str

    @property
    def key(self) -> str:
        return "".join(self.text.split())


Stack = tuple[Line, ...]  # the outermost first


def lines_of_trace(trace: str) -> Stack:
    return tuple(_line(found) for found in TRACE_LINE.finditer(trace))


def traces_of_graph(module: Any) -> tuple[str, ...]:
    """The stacks of a graph that Dynamo made, and of the graphs in it, each once."""
    graphs = [each.graph for each in module.modules() if hasattr(each, "graph")]
    return tuple(dict.fromkeys(node.stack_trace or "" for graph in graphs for node in graph.nodes))


class PresentLines:
    """From the lines of the program that compiled a graph first to those of the program that loaded it."""

    def __init__(self, kept: Iterable[str], text: str, present: Iterable[str]) -> None:
        """`kept`: stacks that came with the graph; `text`: a stage of it, which names single lines."""
        self._old = {trace: lines_of_trace(trace) for trace in kept}
        self._single = [_line(found) for found in _LOCATION.finditer(text)]
        self._new = [lines_of_trace(trace) for trace in present]
        self._found: dict[Stack, Line] = {}  # by an old stack: the line that corresponds to its innermost
        self._pair((), list(set(self._old.values())), list(dict.fromkeys(self._new)))
        self._of_line = {stack[-1][:3]: line for stack, line in self._found.items()}

    def trace(self, trace: str) -> str:
        """The stack as the present program has it; without the inner lines that cannot be told."""
        stack = self._old.get(trace, ())
        known: list[Line] = []
        while len(known) < len(stack) and (line := self._found.get(stack[: len(known) + 1])) is not None:
            known.append(line)
        return "".join(f'  File "{e.file}", line {e.line}, in {e.function}\n    {e.text}\n' for e in known)

    def stage(self, text: str) -> str:
        """A stage with the present lines in its comments; a line that cannot be told is left out."""
        return _COMMENT.sub(self._comment, text)

    def _comment(self, found: re.Match[str]) -> str:
        new = self._of_line.get(_line(found)[:3])
        if new is None:
            return ""
        before = found[0][: found.start("file") - found.start()]
        return f"{before}{new.file}:{new.line} in {new.function}, code: {new.text}\n"

    def _pair(self, above: Stack, old: list[Stack], new: list[Stack]) -> None:
        """`old` and `new` are what was called from corresponding lines; `above`: the old ones of those."""
        depth = len(above)
        was, now = _functions(depth, old), _functions(depth, new)
        for mine, theirs in _corresponding(was, now):
            lines = {line.line: line for line in was[mine]}
            for each in self._single:
                if (each.file, each.function) == mine:
                    lines.setdefault(each.line, each)
            pairs = _lines_in_function(list(lines.values()), list(now[theirs]))
            for line, stacks in was[mine].items():
                if (partner := pairs.get(line.line)) is not None:
                    self._found[*above, line] = partner
                    self._pair((*above, line), stacks, now[theirs][partner])
            for number, partner in pairs.items():
                self._found.setdefault((*above, lines[number]), partner)


def _line(found: re.Match[str]) -> Line:
    return Line(found["file"], int(found["line"]), found["function"], (found["text"] or "").strip())


_Functions = dict[tuple[str, str], dict[Line, list[Stack]]]


def _functions(depth: int, stacks: list[Stack]) -> _Functions:
    """By file and function, and in it by line: the stacks that go through it."""
    found: _Functions = defaultdict(lambda: defaultdict(list))
    for stack in stacks:
        if len(stack) > depth:
            line = stack[depth]
            found[line.file, line.function][line].append(stack)
    return found


def _corresponding(was: _Functions, now: _Functions) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """The same function, else the only one of the same name, else the only one that is left."""
    old, new = list(was), list(now)
    for is_same in (_are_one, _have_one_name, _are_left):
        for mine in list(old):
            alike = [each for each in new if is_same(mine, each)]
            rivals = [each for each in old if any(is_same(each, other) for other in alike)]
            if len(alike) == 1 == len(rivals):
                old.remove(mine)
                new.remove(alike[0])
                yield mine, alike[0]


def _are_one(mine: tuple[str, str], other: tuple[str, str]) -> bool:
    return mine == other


def _have_one_name(mine: tuple[str, str], other: tuple[str, str]) -> bool:
    return mine[1] == other[1]


def _are_left(mine: tuple[str, str], other: tuple[str, str]) -> bool:
    return True


def _lines_in_function(old: Sequence[Line], new: Sequence[Line]) -> Mapping[int, Line]:
    """By the number of an old line: the new one."""
    old, new = sorted(old, key=_number), sorted(new, key=_number)
    if set(old) <= set(new):
        return {line.line: line for line in old}
    found: dict[int, Line] = {}
    was, now = _by_text(old), _by_text(new)
    for text, mine in was.items():
        if len(mine) == len(now.get(text, ())):
            found.update(zip(map(_number, mine), now[text], strict=True))
    for text, mine in was.items():
        if text in now and mine[0].line not in found:
            # Some of several equal lines: as far from their neighbours as they were.
            for line in mine:
                near = min(found, key=lambda n, line=line: abs(n - line.line), default=None)  # type: ignore[misc]
                shift = new[0].line - old[0].line if near is None else found[near].line - near
                found[line.line] = min(now[text], key=lambda e, at=line.line + shift: abs(e.line - at))  # type: ignore[misc]
    _fill(found, old, new)
    return found


def _fill(found: dict[int, Line], old: Sequence[Line], new: Sequence[Line]) -> None:
    """Lines of another text: as many as there are between the same neighbours."""
    paired = {line.line for line in found.values()}
    rest: dict[tuple[int, int], tuple[list[Line], list[Line]]] = defaultdict(lambda: ([], []))
    known = sorted((number, line.line) for number, line in found.items())
    for line in old:
        if line.line not in found:
            rest[_between([n for n, _ in known], line.line)][0].append(line)
    for line in new:
        if line.line not in paired:
            rest[_between([n for _, n in known], line.line)][1].append(line)
    for mine, theirs in rest.values():
        if len(mine) == len(theirs):
            found.update(zip(map(_number, mine), theirs, strict=True))


def _between(numbers: Sequence[int], line: int) -> tuple[int, int]:
    """How many lie before it and behind it."""
    before = sum(number < line for number in numbers)
    return before, len(numbers) - before


def _by_text(lines: Iterable[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.key].append(line)
    return found


def _number(line: Line) -> int:
    return line.line
