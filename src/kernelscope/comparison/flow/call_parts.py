"""Calls that are several in one: operators on lists of tensors, and dropout, which draws and multiplies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ITEM = re.compile(r".*\[(\d+)\]")
_BY_ITEM = ("_foreach_", "_fused_", "_amp_foreach_")
_DROPOUT, _MASK = "native_dropout", "result1"


@dataclass(frozen=True, slots=True)
class CallPart:
    """Positions in what the call reads, and in what it writes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    is_draw: bool = False  # of the parts of a call that draws
    continues: bool = False  # it also reads what the part before has written


def parts_of(call: str, reads: Sequence[str], writes: Sequence[str]) -> list[CallPart]:
    """Of a call by its name, and by the names of the arguments that it reads and writes."""
    operator = call.split(".")[1] if call.startswith("aten.") else ""
    everything = tuple(range(len(reads)))
    if operator == _DROPOUT and _MASK in writes:
        mask = writes.index(_MASK)
        rest = tuple(i for i in range(len(writes)) if i != mask)
        return [CallPart((), (mask,), is_draw=True), CallPart(everything, rest, continues=True)]
    if not operator.startswith(_BY_ITEM):
        return [CallPart(everything, tuple(range(len(writes))), is_draw=True)]
    read, written = [_item(name) for name in reads], [_item(name) for name in writes]
    found = [
        CallPart(
            tuple(i for i in everything if read[i] in (None, item)),
            tuple(i for i, each in enumerate(written) if each == item),
        )
        for item in dict.fromkeys(each for each in written if each is not None)
    ]
    shared = tuple(i for i, each in enumerate(written) if each is None)
    return [*found, CallPart(everything, shared)] if shared or not found else found


def _item(name: str) -> int | None:
    """Its place in the list that it is in: 0, of self[0]."""
    found = _ITEM.fullmatch(name)
    return int(found[1]) if found is not None else None
