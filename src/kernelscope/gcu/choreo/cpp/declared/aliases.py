"""Names that stand for the data of other names: `y = x.subspan(4).at(0);`, `f = dma.copy x => y;`."""

from __future__ import annotations

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.walk import nodes, roots

Aliases = dict[str, frozenset[str]]  # name → the other names whose data it may be
_DATA = (tree.Name, tree.Member, tree.ChunkAt, tree.Tile, tree.SpanAs, tree.Derive, tree.Builtin)


def aliases(body: tree.Block) -> Aliases:
    """Whose data each name of a function may be at any time, also through names between."""
    known: dict[str, set[str]] = {}
    for each in nodes(body):
        match each:
            case tree.Assign(op="=", value=tree.Dma(target=tree.Expr() as target)):
                known.setdefault(each.name, set()).update(roots(target))
            case tree.Assign(op="=", value=value) if isinstance(value, _DATA):
                known.setdefault(each.name, set()).update(roots(value))
            case tree.Swap() | tree.Rotate():
                names = {each.first, each.second} if isinstance(each, tree.Swap) else set(each.names)
                for name in names:
                    known.setdefault(name, set()).update(names)
    changed = True
    while changed:
        changed = False
        for name, found in known.items():
            more = {one for other in found for one in known.get(other, ())} - found - {name}
            found |= more
            changed = changed or bool(more)
    return {name: frozenset(found - {name}) for name, found in known.items() if found - {name}}


def closed(names: set[str], known: Aliases) -> set[str]:
    """Names, and those whose data they may be."""
    return names | {other for name in names for other in known.get(name, ())}
