"""Stages that were kept of an equal graph, told in the words of this one. Needs no torch.

Inductor's cache knows graphs by what they compute, not by where they stand: an equal graph may come from a
file whose lines have moved since, or from another program. Dynamo's graph is made anew each time, and names
both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kernelscope.events import Frame

from .records import FxOrigin, Provenance, Record, Stage

_PLACE = re.compile(r"# File: (?P<file>.+?):(?P<line>\d+) in (?P<function>[^,\n]+)")
_NODE = re.compile(r"^\s+(?P<name>\w+)(?:: [^=]*)? = ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Translation:
    """From an equal graph of another time or place to this one."""

    places: dict[tuple[str, int], Frame]
    names: dict[str, str]
    is_same: bool

    def of(self, record: Record) -> Record:
        if self.is_same:
            return record
        if isinstance(record, Stage):
            return replace(record, text=_PLACE.sub(self._in_text, record.text))
        if isinstance(record, Provenance):
            return replace(record, nodes=tuple(map(self._node, record.nodes)))
        return record

    def _in_text(self, found: re.Match[str]) -> str:
        new = self.places.get((found["file"], int(found["line"])))
        return found[0] if new is None else f"# File: {new.file}:{new.line} in {new.function}"

    def _node(self, node: FxOrigin) -> FxOrigin:
        # A frame that Dynamo's graph does not name is the other program's own: it is left out.
        frames = [self.places.get((f.file, f.line)) for f in node.frames]
        return replace(
            node,
            pre_grad=tuple(self.names.get(name, name) for name in node.pre_grad),
            frames=tuple(f for f in frames if f is not None),
        )


def translation(kept: str, current: str) -> Translation | None:
    """From Dynamo's graph as it was kept to the one of now; None when they are not alike."""
    if kept == current:
        return Translation({}, {}, is_same=True)
    old_places, new_places = list(_PLACE.finditer(kept)), list(_PLACE.finditer(current))
    old_names, new_names = _NODE.findall(kept), _NODE.findall(current)
    if len(old_places) != len(new_places) or len(old_names) != len(new_names):
        return None
    places = {
        (old["file"], int(old["line"])): Frame(new["file"], int(new["line"]), new["function"].strip())
        for old, new in zip(old_places, new_places, strict=True)
    }
    return Translation(places, dict(zip(old_names, new_names, strict=True)), is_same=False)
