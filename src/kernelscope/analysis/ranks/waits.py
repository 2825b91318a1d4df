"""Functional collectives: what one gave is in its memory when its `wait_tensor` has returned."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Any

import numpy as np

from kernelscope.model.call import KernelCall

from .rank import Rank, is_functional
from .sent.transfers import Piece, content

_PIECE = re.compile(r"(.+)\[(\d{1,9})\]")


class Waits:
    """The waits of one rank, by the memory that they waited for."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    @cached_property
    def _by_storage(self) -> dict[int, list[int]]:
        columns = self._rank.columns
        waiting = [
            id
            for id, site in columns.sites.items()
            if is_functional(site.kernel.name) and "wait_tensor" in site.kernel.name
        ]
        found: dict[int, list[int]] = {}
        for position in np.flatnonzero(np.isin(columns.site, waiting)).tolist():
            for storage, _, _ in self._rank.at(position).storages.values():
                found.setdefault(storage, []).append(position)
        return found

    def gave(self, position: int) -> dict[int, Any]:
        """What the collective at this position wrote, by argument; what was never waited for is not known."""
        call = self._rank.at(position)
        written = [i for i in sorted(call.storages) if call.arguments[i].role in ("out", "inout")]
        if not is_functional(call.kernel_name):
            return {i: call.post_hashes[i] for i in written if i in call.post_hashes}
        places = {i: (call.storages[i][0], call.storages[i][2]) for i in written} | call.begun_storages
        values = {i: self._at_its_wait(places[i], position) for i in sorted(places)}
        return {i: value for i, value in values.items() if value is not None}

    def pieces(self, position: int) -> dict[str, Piece]:
        """Of an all-gather into one tensor: what it has of each rank, by argument."""
        call = self._rank.at(position)
        args = [(i, arg) for i, arg in enumerate(call.arguments) if arg.tensor is not None]
        given = [arg.name for _, arg in args if arg.role == "in" and not arg.returned]
        written = [i for i, arg in args if arg.role in ("out", "inout")]
        if not is_functional(call.kernel_name):
            found = _pieces_of(call)
            return {
                f"{name}[{place}]": Piece(place, sent, found[name, place])
                for name, sent in zip((call.arg_names[i] for i in written), given, strict=False)
                for place in sorted(place for other, place in found if other == name)
            }
        places = {i: (call.storages[i][0], call.storages[i][2]) for i in written if i in call.storages}
        places |= call.begun_storages
        pieces: dict[str, Piece] = {}
        for i, sent in zip(sorted(places), given, strict=False):
            wait = self._wait_for(places[i], position)
            if wait is None:
                continue
            awaited = wait.arg_names[_argument_at(wait, places[i])]
            for (name, place), held in sorted(_pieces_of(wait).items()):
                if name == awaited:
                    pieces[f"{call.arg_names[i]}[{place}]"] = Piece(place, sent, held)
        return pieces

    def _at_its_wait(self, place: tuple[int, int], position: int) -> Any:
        wait = self._wait_for(place, position)
        return None if wait is None else wait.post_hashes[_argument_at(wait, place)]

    def _wait_for(self, place: tuple[int, int], position: int) -> KernelCall | None:
        waits = self._by_storage.get(place[0], [])
        calls = (self._rank.at(at) for at in waits[bisect_right(waits, position) :])
        return next((wait for wait in calls if _argument_at(wait, place) >= 0), None)


def _argument_at(wait: KernelCall, place: tuple[int, int]) -> int:
    """The argument whose contents at this place are known; -1 if none is."""
    at = (i for i, (storage, _, offset) in wait.storages.items() if (storage, offset) == place)
    return next((i for i in at if i in wait.post_hashes), -1)


def _pieces_of(call: KernelCall) -> dict[tuple[str, int], str]:
    """What recording added to a call: by argument that they are pieces of, and place in the group."""
    found: dict[tuple[str, int], str] = {}
    for i, arg in enumerate(call.arguments):
        match = _PIECE.fullmatch(arg.name) if arg.returned and arg.role == "in" else None
        if match is not None and i in call.post_hashes:
            found[match[1], int(match[2])] = content(call, i, call.post_hashes[i])
    return found
