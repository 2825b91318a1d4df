"""The scan for NaN and infinities of what one launch left on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelscope.fingerprint.cpu.in_wrappers.nan_scan import LIBRARY, NAN
from kernelscope.fingerprint.cpu.in_wrappers.runs import runs_of

FLOAT32 = 0


@pytest.mark.parametrize("count", [1, 64, 65, 500])
def test_however_many_tensors_a_launch_has(count: int) -> None:
    library = LIBRARY.get()
    assert library is not None
    left = [torch.full((3, 5), float(n)) for n in range(count)]
    before, rooms = [t - 1 for t in left], [torch.zeros(3, 5) for _ in left]
    runs = runs_of([3, 5], [5, 1], 4)
    hits: list[Any] = []

    def carefully(*given: Any) -> None:
        raise AssertionError("nothing is out of the ordinary")

    look: Callable[..., None] = library.look(
        [(place, runs, FLOAT32) for place in range(count)],
        [(count + place, runs, room.data_ptr()) for place, room in enumerate(rooms)],
        NAN,
        carefully,
        lambda *given: hits.append(given),
    )
    look("an execution", *left, *before)
    assert not hits
    assert all(torch.equal(room, t) for room, t in zip(rooms, before, strict=True))
    left[-1][2, 4] = math.nan
    look("an execution", *left, *before)
    assert len(hits) == 1
    assert len(hits[0]) == 1 + 2 * count
