"""Nodes of a graph that compute from memory which torch.empty left as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernelscope.events import Frame
from kernelscope.generated_code.printed_graph import read_fx

_MAKES = re.compile(r"torch\.ops\.aten\.(?:new_)?empty(?:_like|_strided|_permuted)?\.")
_LINE = re.compile(r"^ *# File: (?P<file>.+?):(?P<line>\d+) in (?P<function>.+?), code:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UndefinedMemory:
    """A call of torch.empty, or of an operator like it."""

    node: str
    line: Frame | None  # of the program


def undefined_memory(text: str, nodes: Iterable[str]) -> UndefinedMemory | None:
    """What one of these nodes of a printed graph computes from; None where operators made all of it."""
    graph = read_fx(text)
    computed = [graph.lines[name] for name in nodes if name in graph.lines]
    for name in dict.fromkeys(each for line in computed for each in (line.name, *line.needs)):
        if name in graph.lines and _MAKES.search(graph.lines[name].code):
            return UndefinedMemory(name, _line_of(text, name))
    return None


def _line_of(text: str, node: str) -> Frame | None:
    """Of the comment before the line that defines it."""
    defined = re.search(rf"^ *{re.escape(node)}(?::| =)", text, re.MULTILINE)
    before = list(_LINE.finditer(text, 0, defined.start())) if defined is not None else []
    if not before:
        return None
    return Frame(before[-1]["file"], int(before[-1]["line"]), before[-1]["function"])
