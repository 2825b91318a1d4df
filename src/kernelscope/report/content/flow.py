"""Which call wrote what a call reads: found by memory, or else by equal values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernelscope.events import Call

Link = tuple[int, int, bool]  # call, argument, whether only their values tell
Links = dict[int, dict[int, Link]]


def producers(calls: Iterable[Call]) -> Links:
    """By call and argument: which call wrote it, as far as that call is among these."""
    found: Links = {}
    memory: dict[int, dict[int, tuple[int, int]]] = {}  # by storage and offset: who wrote there last
    latest: dict[int, tuple[int, int]] = {}
    values: dict[Any, tuple[int, int]] = {}
    for call in calls:
        at = storages(call)
        read = _read(call)
        links: dict[int, Link] = {}
        for i, value in read.items():
            storage, offset = at.get(i, (-1, 0))
            writer = memory.get(storage, {}).get(offset) or latest.get(storage)
            if writer is not None:
                links[i] = (*writer, False)
            elif value is not None and value in values:
                links[i] = (*values[value], True)
        if links:
            found[call.index] = links
        for i, value in _written(call).items():
            if i in at:
                storage, offset = at[i]
                memory.setdefault(storage, {})[offset] = latest[storage] = (call.index, i)
            if value is not None:
                values[value] = (call.index, i)
    return found


def consumers(links: Links) -> dict[int, list[list[Any]]]:
    """By call: (its argument, the reader, the reader's argument, whether only values match)."""
    found: dict[int, list[list[Any]]] = {}
    for index, arguments in links.items():
        for i, (writer, position, by_value) in arguments.items():
            found.setdefault(writer, []).append([position, index, i, by_value])
    return found


def storages(call: Call) -> dict[int, tuple[int, int]]:
    """By argument: storage and offset."""
    return {
        i: (storage, offset)
        for i, storage, offset in zip(call.site.readable, call.storages, call.offsets, strict=False)
    }


def _read(call: Call) -> dict[int, Any]:
    """Arguments whose contents it found, with their hashes."""
    slots = call.pre or {}
    args = call.site.args
    found = [i for i, a in enumerate(args) if a.tensor is not None and a.role in ("in", "inout")]
    return {
        i: call.fingerprinter.read(slots[i]) if i in slots else None
        for i in found
        if i not in call.uninitialised
    }


def _written(call: Call) -> dict[int, Any]:
    before, after = call.pre or {}, call.post or {}
    declared = {
        i for i, a in enumerate(call.site.args) if a.tensor is not None and a.role in ("out", "inout")
    }
    changed = {i for i in before.keys() & after.keys() if before[i] != after[i]}
    changed = {i for i in changed if call.fingerprinter.read(before[i]) != call.fingerprinter.read(after[i])}
    return {i: call.fingerprinter.read(after[i]) if i in after else None for i in sorted(declared | changed)}
