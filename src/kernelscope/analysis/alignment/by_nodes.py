"""Other kernels that compute the same FX nodes: put side by side, of runs with stages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import PurePath

from kernelscope.events import Graph, Site
from kernelscope.model.run import Run

Nodes = frozenset[Hashable]
Part = tuple[int, int, int, int]  # from and to in the first, from and to in the second


def nodes_of(run: Run, site: Site, graph: Graph | None) -> Nodes | None:
    """The nodes that launches at this site compute, with their lines; None where that is not known."""
    staged = run.stages_of(graph)
    found = None if staged is None else staged.provenance_at(site.line, site.kernel.name)
    if found is None or not found.nodes or graph is None:
        return None
    where = graph.compile_id, graph.direction
    return frozenset(
        (where, node.name, node.target, node.pre_grad, *_line(node.frames[:1])) for node in found.nodes
    )


def _line(frames: Sequence[object]) -> list[Hashable]:
    return [(PurePath(getattr(f, "file", "")).name, getattr(f, "line", 0)) for f in frames]


def cut(a: Sequence[Nodes | None], b: Sequence[Nodes | None]) -> list[Part] | None:
    """The shortest stretches of both that compute the same nodes; None where there is only one."""
    known_a, known_b = ([nodes for nodes in side if nodes is not None] for side in (a, b))
    if not a or not b or len(known_a) < len(a) or len(known_b) < len(b):
        return None
    parts = _cut(known_a, known_b)
    i, k, j, m = parts.pop()  # what is left has other nodes, or none to compare with
    rest = _cut([*map(_as_traced, known_a[i:k])], [*map(_as_traced, known_b[j:m])], whole=True)
    parts += [(i + i0, i + i1, j + j0, j + j1) for i0, i1, j0, j1 in rest]
    return parts if len(parts) > 1 else None


def _as_traced(nodes: Nodes) -> Nodes:
    """As the program's own operators: another torch may take them apart in another way."""
    return frozenset((n[0], n[3] or n[1]) if isinstance(n, tuple) and len(n) > 3 else n for n in nodes)


def _cut(a: Sequence[Nodes], b: Sequence[Nodes], *, whole: bool = False) -> list[Part]:
    """With `whole`, no node is left in two parts: each may stand for several."""
    parts: list[Part] = []
    i = j = i0 = j0 = 0
    of_a, of_b = set[Hashable](), set[Hashable]()
    while i < len(a) or j < len(b):
        more_a, more_b = whole and _continues(a, i, of_a), whole and _continues(b, j, of_b)
        is_behind = not of_a or not of_b <= of_a
        if i < len(a) and (more_a or j == len(b) or (is_behind and not more_b)):
            of_a |= a[i]
            i += 1
        else:
            of_b |= b[j]
            j += 1
        goes_on = _continues(a, i, of_a) or _continues(b, j, of_b)
        if of_a and of_a == of_b and not (whole and goes_on):
            parts.append((i0, i, j0, j))
            i0, j0, of_a, of_b = i, j, set(), set()
    if i0 < i or j0 < j:
        parts.append((i0, i, j0, j))
    return parts


def _continues(kernels: Sequence[Nodes], at: int, nodes: set[Hashable]) -> bool:
    """Whether the next kernel computes another part of one of these operators."""
    return at < len(kernels) and not kernels[at].isdisjoint(nodes)
