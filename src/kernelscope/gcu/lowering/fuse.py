"""Which nodes become one kernel.

A kernel goes over one set of dimensions. Of these some may be reduced; what is computed from a reduction is
used in a later pass over the same row. A node may join if it goes over the same dimensions, and reads what
the kernel computes exactly where that is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .dag import INDEX, Access, Dag, Node
from .sizes import Size, equal, is_one, product, refine, spread, times

ROW_ELEMENTS = 32 << 10  # that may be kept between the passes over a row
NODES = 64  # in one kernel

Hint = Callable[[Size], int]


@dataclass
class Plan:
    """How one kernel computes its nodes."""

    nodes: tuple[Node, ...]
    dims: tuple[Size, ...]
    reduced: frozenset[int]
    full: frozenset[str]  # nodes computed for every element, rather than once per row
    level: dict[str, int]  # in which pass
    reads: dict[tuple[str, int], Access] = field(default_factory=dict)  # by node and input, over dims
    stores: dict[str, Access] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        return 1 + max(self.level.values(), default=0)


def plan(nodes: Sequence[Node], hint: Hint) -> Plan | None:
    """How to compute these nodes in one kernel, or None if that is impossible."""
    made = planned(nodes, hint)
    return made if isinstance(made, Plan) else None


def planned(nodes: Sequence[Node], hint: Hint) -> Plan | str:
    """How to compute these nodes in one kernel, or why that is impossible."""
    if len(nodes) > 1 and any(n.kind not in ("pointwise", "reduce") for n in nodes):
        return "a matrix product or a concatenation is a kernel of its own"
    if len(nodes) > NODES:
        return f"more than {NODES} nodes"
    reductions = [n for n in nodes if n.kind == "reduce"]
    domain = _domain(nodes, reductions, hint)
    if domain is None:
        return "they go over different dimensions"
    dims, reduced, full = domain
    outer = tuple(d for i, d in enumerate(dims) if i not in reduced)
    made = Plan(tuple(nodes), dims, reduced, full, {})
    for n in nodes:
        for place, access in [*enumerate(n.inputs), *([(-1, n.stores)] if n.stores else [])]:
            over = spread(n.shape, access.strides, dims if n.name in full else outer)
            if over is None:
                return "they go over different dimensions"
            if n.name not in full:
                over = _with_reduced(over, reduced)
            placed = Access(access.buffer, over, access.offset)
            if place < 0:
                made.stores[n.name] = placed
            else:
                made.reads[n.name, place] = placed
    if not _reads_in_place(made):
        return "one reads elements of the other that are computed in another iteration"
    if not _levels(made):
        return "they would have to be computed in a different order"
    return made if _fits(made, hint) else "a row is too long to be kept between two passes over it"


def _domain(
    nodes: Sequence[Node], reductions: list[Node], hint: Hint
) -> tuple[tuple[Size, ...], frozenset[int], frozenset[str]] | None:
    if not reductions:
        dims = refine([n.shape for n in nodes], hint)
        return None if dims is None else (dims, frozenset(), frozenset(n.name for n in nodes))
    whole = product(reductions[0].shape)
    full = {n.name for n in nodes if n.kind == "reduce" or equal(product(n.shape), whole)}
    dims = refine([n.shape for n in nodes if n.name in full], hint)
    if dims is None:
        return None
    flags = [_flags(n, dims) for n in reductions]
    if any(f is None or f != flags[0] for f in flags) or flags[0] is None:
        return None
    return dims, flags[0], frozenset(full)


def _flags(n: Node, dims: tuple[Size, ...]) -> frozenset[int] | None:
    """Which refined dimensions a reduction reduces."""
    marks = spread(n.shape, [1 if i in n.reduced else 0 for i in range(len(n.shape))], dims)
    return None if marks is None else frozenset(i for i, m in enumerate(marks) if m != 0)


def _with_reduced(over: tuple[Size, ...], reduced: frozenset[int]) -> tuple[Size, ...]:
    left = iter(over)
    return tuple(0 if i in reduced else next(left) for i in range(len(over) + len(reduced)))


def _reads_in_place(made: Plan) -> bool:
    """What the kernel itself computes must be read where, and as often as, it is computed."""
    output = {n.output: n for n in made.nodes}
    for (name, _), access in made.reads.items():
        source = output.get(access.buffer)
        if source is None:
            continue
        if name not in made.full and source.name in made.full and source.kind != "reduce":
            return False
        stored = made.stores[source.name]
        if access.offset != 0 or not _same(access.strides, stored.strides, made.dims):
            return False
    return True


def _same(a: Sequence[Size], b: Sequence[Size], dims: Sequence[Size]) -> bool:
    return all(is_one(d) or equal(x, y) for x, y, d in zip(a, b, dims, strict=True))


def _levels(made: Plan) -> bool:
    output = {n.output: n for n in made.nodes}
    for n in made.nodes:
        level = 0
        for a in n.inputs:
            source = output.get(a.buffer)
            if source is not None:
                if source.name not in made.level:
                    return False  # not in order
                level = max(level, made.level[source.name] + (source.kind == "reduce"))
        made.level[n.name] = level
    return True


def repeated(made: Plan) -> set[str]:
    """Full nodes so cheap that a later pass computes them again rather than reads them back."""
    output = {n.output: n for n in made.nodes}
    found = set()
    for n in made.nodes:
        sources = [output.get(a.buffer) for a in n.inputs]
        from_row = all(s is None or s.kind == "reduce" or s.name not in made.full for s in sources)
        if (
            n.kind == "pointwise"
            and n.name in made.full
            and from_row
            and "__" not in n.body
            and "/" not in n.body
        ):
            found.add(n.name)
    return found


def kept(made: Plan) -> list[str]:
    """Full nodes whose values are needed in a later pass than the one that computes them."""
    cheap = repeated(made)
    output = {n.output: n for n in made.nodes}
    found = []
    for n in made.nodes:
        for a in n.inputs:
            source = output.get(a.buffer)
            if source is None or source.kind == "reduce" or source.name not in made.full:
                continue
            if source.name in cheap:
                continue
            if made.level[source.name] < made.level[n.name]:
                found.append(source.name)
    return list(dict.fromkeys(found))


def _fits(made: Plan, hint: Hint) -> bool:
    if not made.reduced or not kept(made):
        return True
    row = product(made.dims[i] for i in made.reduced)
    if not isinstance(row, int):
        return False  # a local buffer needs a size that is known
    last = len(made.dims) - 1
    width = 1 if last in made.reduced else min(64, hint(made.dims[last]))
    return row * width * len(kept(made)) <= ROW_ELEMENTS


def fuse(dag: Dag, hint: Hint) -> Dag:
    """Group nodes, joining producers and consumers while that is possible."""
    group: dict[str, list[Node]] = {n.name: [n] for n in dag.nodes}
    order = {n.name: i for i, n in enumerate(dag.nodes)}
    edges = dag.edges()
    followers: dict[str, list[str]] = {}
    for a, b in edges:
        followers.setdefault(a, []).append(b)
    for a, b in sorted(edges, key=lambda e: (order[e[1]], -order[e[0]])):
        first, second = group[a], group[b]
        if first is second:
            continue
        together = sorted([*first, *second], key=lambda n: order[n.name])
        if any(n.kind == "aten" for n in together):
            continue
        if _goes_around({n.name for n in together}, followers, group):
            dag.refusals.append((a, b, "something between them is computed elsewhere"))
            continue
        made = planned(together, hint)
        if isinstance(made, str):
            dag.refusals.append((a, b, made))
            continue
        for n in together:
            group[n.name] = together
    unique = {id(g): g for g in group.values()}
    dag.groups = _sorted(list(unique.values()), edges, order)
    return dag


def _goes_around(inside: set[str], followers: dict[str, list[str]], group: dict[str, list[Node]]) -> bool:
    """Whether a path leaves these nodes and comes back: then they cannot be one kernel."""
    seen: set[str] = set()
    todo = [f for name in inside for f in followers.get(name, ()) if f not in inside]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        # Everything in its group is computed with it.
        for member in group[name]:
            for f in followers.get(member.name, ()):
                if f in inside:
                    return True
                todo.append(f)
    return False


def _sorted(
    groups: list[list[Node]], edges: list[tuple[str, str]], order: dict[str, int]
) -> list[tuple[str, ...]]:
    """Groups in an order in which each finds what it needs."""
    place = {n.name: i for i, g in enumerate(groups) for n in g}
    needs: dict[int, set[int]] = {i: set() for i in range(len(groups))}
    for a, b in edges:
        if place[a] != place[b]:
            needs[place[b]].add(place[a])
    ready: list[int] = []
    left = sorted(needs, key=lambda i: order[groups[i][0].name])
    while left:
        now = next(i for i in left if needs[i] <= set(ready))
        ready.append(now)
        left.remove(now)
    return [tuple(n.name for n in groups[i]) for i in ready]


def collapse(
    dims: Sequence[Size], accesses: Sequence[Sequence[Size]], classes: Sequence[int]
) -> list[list[int]]:
    """Runs of neighbouring dimensions that every access goes through as if they were one."""
    runs: list[list[int]] = []
    for i in range(len(dims)):
        if runs and classes[runs[-1][-1]] == classes[i]:
            before = runs[-1][-1]
            if all(equal(s[before], times(s[i], dims[i])) for s in accesses):
                runs[-1].append(i)
                continue
        runs.append([i])
    return runs


def external(made: Plan) -> dict[str, list[tuple[str, int]]]:
    """Buffers that come from outside, with the reads of each."""
    inside = {n.output for n in made.nodes}
    found: dict[str, list[tuple[str, int]]] = {}
    for key, access in made.reads.items():
        if access.buffer not in inside and access.buffer != INDEX:
            found.setdefault(access.buffer, []).append(key)
    return found
