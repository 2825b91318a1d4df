"""Stages that were kept of an equal graph, with the names and lines of this one.

Inductor's cache knows graphs by what they compute, not by where they come from: an equal graph may be from
a file whose lines have moved since, or from another program. Dynamo's graph, made each time, names both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kernelscope.events import Frame

from .records import FxOrigin, Provenance, Record, Stage

_LOCATION = re.compile(
    r"(?P<mark># (?:Backward of forward node: )?File: )(?P<file>.+?):(?P<line>\d+) in (?P<function>[^,\n]+)"
    r"(?P<code>, code: [^\n]*)?"
)
_NODE = re.compile(r"^\s+(?P<name>\w+)(?:: [^=]*)? = ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Translation:
    """From an equal graph of another time or program to this one."""

    lines: dict[tuple[str, int], Frame]
    codes: dict[tuple[str, int], str]  # ", code: …" of the new line
    names: dict[str, str]
    is_same: bool

    def of(self, record: Record) -> Record:
        if self.is_same:
            return record
        if isinstance(record, Stage):
            return replace(record, text=_LOCATION.sub(self._in_text, record.text))
        if isinstance(record, Provenance):
            return replace(record, nodes=tuple(map(self._node, record.nodes)))
        return record

    def _in_text(self, found: re.Match[str]) -> str:
        place = found["file"], int(found["line"])
        new = self.lines.get(place)
        if new is None:
            return found[0]
        code = self.codes[place] if found["code"] is not None else ""
        return f"{found['mark']}{new.file}:{new.line} in {new.function}{code}"

    def _node(self, node: FxOrigin) -> FxOrigin:
        # A frame that Dynamo's graph does not name belongs to the other program: it is left out.
        frames = [self.lines.get((f.file, f.line)) for f in node.frames]
        return replace(
            node,
            pre_grad=tuple(self.names.get(name, name) for name in node.pre_grad),
            frames=tuple(f for f in frames if f is not None),
        )


def translation(kept: str, current: str) -> Translation | None:
    """From Dynamo's graph as it was kept to the current one; None if they are not alike."""
    if kept == current:
        return Translation({}, {}, {}, is_same=True)
    old_lines, new_lines = list(_LOCATION.finditer(kept)), list(_LOCATION.finditer(current))
    old_names, new_names = _NODE.findall(kept), _NODE.findall(current)
    if len(old_lines) != len(new_lines) or len(old_names) != len(new_names):
        return None
    lines, codes = {}, {}
    for old, new in zip(old_lines, new_lines, strict=True):
        place = old["file"], int(old["line"])
        lines[place] = Frame(new["file"], int(new["line"]), new["function"].strip())
        codes[place] = new["code"] or ""
    return Translation(lines, codes, dict(zip(old_names, new_names, strict=True)), is_same=False)
