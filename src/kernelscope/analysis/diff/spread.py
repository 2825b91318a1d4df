"""How a divergence spreads from call to call, within a graph call and beyond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelscope.analysis.alignment.aligned_calls import Alignment
from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.model.call import KernelCall

from .divergence_parts import Link, Spread
from .pairs import PairDifference, compare
from .threads import on_thread

_MOST = 300  # calls that are followed one by one


def spread(
    alignment: Alignment, different: Any, of_a: Reader, of_b: Reader, pair: int, first: KernelCall
) -> Spread:
    """From this pair on. `different` are all pairs whose values differ."""
    later = different[different > pair]
    followed = later[:_MOST]
    a = of_a.many([int(alignment.a[p]) for p in followed])
    b = of_b.many([int(alignment.b[p]) for p in followed])
    taint = _Taint(first)
    links = {}
    for one, other in zip(a, b, strict=True):
        link = taint.follow(one, compare(one, other))
        if link is not None:
            links[link.index] = link
    chain = [
        replace(link, thread=on_thread(alignment, a=link.index).removeprefix(" on "))
        for link in _chain(links, first, a)
    ]
    return Spread(
        tuple(chain),
        len(later),
        int(np.count_nonzero(np.arange(len(alignment)) > pair)),
        int(alignment.columns_a.index[alignment.a[later[-1]]]) if len(later) else None,
    )


class _Taint:
    """Which memory and which values go back to the first divergence, in the first run."""

    def __init__(self, first: KernelCall) -> None:
        self._storages: dict[int, int] = {}  # index of the call that wrote it last
        self._values: dict[Any, int] = {}
        self._leave(first, first.modified_args)

    def follow(self, call: KernelCall, difference: PairDifference) -> Link | None:
        if not difference.inputs:
            return None
        storages, pre = call.storages, call.pre_hashes
        link = None
        for one in difference.inputs:
            i = one.position
            parent = self._values.get(pre.get(i))
            if parent is None and i in storages:
                parent = self._storages.get(storages[i][0])
            if parent is not None:
                link = Link(call.index, call.kernel_name, one.argument, parent, str(call.origin or ""))
                break
        if link is not None:
            self._leave(call, {one.position for one in difference.outputs})
        return link

    def _leave(self, call: KernelCall, written: set[int]) -> None:
        storages, post = call.storages, call.post_hashes
        for i in written:
            if i in storages:
                self._storages[storages[i][0]] = call.index
            if i in post:
                self._values[post[i]] = call.index


def _chain(links: dict[int, Link], first: KernelCall, followed: list[KernelCall]) -> tuple[Link, ...]:
    """From the first call to the last one reached in its execution, or else to the last one reached."""
    inside = [c.index for c in followed if c.index in links and c.graph_call == first.graph_call]
    at = max(inside or links, default=None)
    chain: list[Link] = []
    while at is not None and at in links and len(chain) < len(links):
        chain.append(links[at])
        at = links[at].parent
    return tuple(chain[::-1])
