"""Functional collectives: what one gave is in its memory when its `wait_tensor` has returned."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Any

import numpy as np

from .rank import Rank, is_functional


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

    def _at_its_wait(self, place: tuple[int, int], position: int) -> Any:
        waits = self._by_storage.get(place[0], [])
        for at in waits[bisect_right(waits, position) :]:
            wait = self._rank.at(at)
            for i, (storage, _, offset) in wait.storages.items():
                if (storage, offset) == place and i in wait.post_hashes:
                    return wait.post_hashes[i]
        return None
