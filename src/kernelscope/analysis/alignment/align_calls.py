"""Which call of one run is which call of another, when something may be fused, missing or added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from kernelscope.model.run import Run
from kernelscope.store.columns import Columns, columns_of

from .aligned_calls import Alignment, Gap
from .by_nodes import Nodes
from .by_thread import align_threads
from .identity import Keys
from .sequences import Codes
from .tiers import Sides, spelled


def align(a: Run, b: Run, *, found: bool = False) -> Alignment:
    """By kernel within the same graph and step, then by FX nodes, by kernel alone, and by its name.

    What is left has other kernels; it is put side by side by FX nodes, where those are known, or else
    by the user's lines. Of runs with several threads, each thread is aligned by itself.
    """
    with ThreadPoolExecutor(2) as readers:
        columns_a, columns_b = readers.map(partial(columns_of, found=found), (a, b))
    keys = Keys()
    codes_a, codes_b = keys.codes(a, columns_a), keys.codes(b, columns_b)
    if len(columns_a.threads) > 1 or len(columns_b.threads) > 1:
        sides = Sides((columns_a.site, columns_b.site), (codes_a, codes_b), keys.nodes)
        return align_threads((columns_a, columns_b), sides, (a.info.main_thread, b.info.main_thread))
    return align_codes(columns_a, columns_b, codes_a, codes_b, keys.nodes)


def align_codes(
    columns_a: Columns,
    columns_b: Columns,
    codes_a: list[Codes],
    codes_b: list[Codes],
    nodes: Sequence[Mapping[int, Nodes | None]] = ({}, {}),
) -> Alignment:
    """Runs of one thread."""
    sides = Sides((columns_a.site, columns_b.site), (codes_a, codes_b), nodes)
    found, parts = sides.matched([(0, len(columns_a), 0, len(columns_b))])
    at_a, at_b, tiers = spelled(found)
    closed = tuple(
        Gap(
            range(a0, a1),
            range(b0, b1),
            int(np.searchsorted(at_a, a0)),
            ends=b0 >= len(columns_b) if a0 < a1 else a0 >= len(columns_a),
        )
        for a0, a1, b0, b1 in sides.side_by_side(parts)
    )
    return Alignment(columns_a, columns_b, at_a, at_b, tiers, closed)
