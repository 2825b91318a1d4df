"""By what a call of one run is recognised in another: from exactly the same to merely at the same place."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

import numpy as np

from kernelscope.events import Graph, Kernel, Site
from kernelscope.model.run import Run
from kernelscope.store.columns import Columns

from .by_nodes import Nodes, nodes_of
from .sequences import Codes

_NUMBER = re.compile(r"_\d+$")

_DENSE = 1_000_000

EXACT, SAME_KERNEL_AND_NODES, SAME_NODES, SAME_KERNEL, SAME_NAME, SAME_LINE = TIERS = range(6)
OTHER_CODE = SAME_NODES, SAME_NAME  # maybe


def kernel_key(kernel: Kernel) -> tuple[str, str, str]:
    """A kernel, wherever it stands: generated code by what it says, others by their name."""
    return kernel.kind, stem(kernel.name), kernel.source_hash


def stem(name: str) -> str:
    """Without the number that depends on how many kernels came before."""
    return _NUMBER.sub("", name)


def keys_of(site: Site, graph: Graph | None, nodes: Any) -> tuple[Any, ...]:
    """One key for each tier; `nodes` are those that it computes."""
    kernel = kernel_key(site.kernel)
    graph_key = graph.cache_key if graph is not None else None
    direction = graph.direction if graph is not None else None
    line = (PurePath(site.origin[0].file).name, site.origin[0].line) if site.origin else None
    return (
        (graph_key, kernel),
        (kernel, nodes),
        (site.kernel.kind, stem(site.kernel.name), nodes),
        (direction, kernel),
        (direction, site.kernel.kind, stem(site.kernel.name)),
        (direction == "backward", line),  # eager operators belong to no graph, and stand with its forward
    )


class Keys:
    """Numbers for the keys of both runs: equal keys, equal numbers."""

    def __init__(self) -> None:
        self._numbers: list[dict[Any, int]] = [{} for _ in TIERS]
        self.nodes: list[dict[int, Nodes | None]] = []  # of each run, by site

    def codes(self, run: Run, columns: Columns) -> list[Codes]:
        """For each tier, a number for each call. The first tells steps apart, too."""
        sites, first, places = _distinct(columns.site)
        # One site belongs to one graph: its line of a wrapper. Eager ones have none.
        graphs = [run.graph_of(int(call)) for call in columns.graph_call[first]]
        nodes = {
            int(s): nodes_of(run, columns.sites[int(s)], graph)
            for s, graph in zip(sites, graphs, strict=True)
        }
        # What is not known is like nothing in the other run.
        keys = [
            keys_of(columns.sites[int(s)], graph, nodes[int(s)] or ("unknown", len(self.nodes)))
            for s, graph in zip(sites, graphs, strict=True)
        ]
        self.nodes.append(nodes)
        found = []
        for tier in TIERS:
            known = self._numbers[tier]
            numbers = [known.setdefault(key[tier], len(known)) for key in keys]
            found.append(np.array(numbers, np.int64)[places])
        found[EXACT] = found[EXACT] + (columns.step << 32)
        return found


def _distinct(numbers: Codes) -> tuple[Codes, Codes, Codes]:
    """Each number once, where it first stands, and for each place which number stands there."""
    most = int(numbers.max(initial=0))
    if most > _DENSE + len(numbers) or int(numbers.min(initial=0)) < 0:
        return np.unique(numbers, return_index=True, return_inverse=True)
    first = np.full(most + 1, -1, np.int64)  # sites are numbered from 0: no need to sort
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    distinct = np.flatnonzero(first >= 0)
    ranks = np.zeros(most + 1, np.int64)
    ranks[distinct] = np.arange(len(distinct))
    return distinct, first[distinct], ranks[numbers]
