"""Which copies need not be made on a machine whose memory is all in one place.

A tile that is only read can be read where it lies, if it is not written. A local buffer that ends up,
whole, in one tile of an output can be that tile.
"""

from __future__ import annotations

from kernelscope.gcu.choreo.cpp.declared.aliases import Aliases, closed
from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.walk import declared, handed, names, nodes, root, written


def moving_futures(function: tree.Function) -> set[str]:
    """Futures that change what they hold: swapped, rotated, selected, or filled again."""
    moving: set[str] = set()
    for each in nodes(function.body):
        match each:
            case tree.Swap():
                moving.update((each.first, each.second))
            case tree.Rotate():
                moving.update(each.names)
            case tree.Builtin(name="select"):
                moving.update(root(arg) for arg in each.args[1:])
            case tree.Assign(value=tree.Dma(kind="any")):
                moving.add(each.name)
    return moving | _refilled(function.body, frozenset())


def _refilled(block: tree.Block, known: frozenset[str]) -> set[str]:
    """Futures that are assigned where they are already known."""
    found: set[str] = set()
    for each in block:
        if isinstance(each, tree.Assign) and isinstance(each.value, tree.Dma):
            found |= {each.name} & known
            known |= {each.name}
        for part in ("body", "then", "other"):
            found |= _refilled(getattr(each, part, ()), known)
    return found


def reads_in_place(statement: tree.Assign, rest: tree.Block, function: tree.Function, known: Aliases) -> bool:
    """Whether the tile that this DMA would copy can be read where it lies."""
    dma, name = statement.value, statement.name
    if not isinstance(dma, tree.Dma) or dma.kind != "copy" or dma.source is None:
        return False
    if not isinstance(dma.target, str) or dma.after:
        return False
    if any(isinstance(each, tree.Cpp) for each in nodes(function.body)):
        return False  # C++ may write anything
    source = root(dma.source)
    given = {p.name for p in function.parameters if p.dims is not None}
    if source not in given or source in closed(written(function.body), known):
        return False
    # Another name for it may be written to.
    return not _used_otherwise(name, rest) and not any(name in others for others in known.values())


def _used_otherwise(name: str, block: tree.Block) -> bool:
    """Whether something other than reading elements is done with a future."""
    for each in nodes(block):
        match each:
            case tree.Store() if root(each.target.of) == name:
                return True
            case tree.Call() | tree.CallValue() if name in handed(each):
                return True
            case tree.Dma() if name in names(each):
                return True
            case tree.Rotate() if name in each.names:
                return True
            case tree.Swap() | tree.Builtin(name="select") if name in names(each):
                return True
            case tree.Assign() if each.name == name:
                return True
    return False


def becomes(statement: tree.DeclareBuffer, rest: tree.Block, known: Aliases) -> tree.Do | None:
    """The DMA that would copy this whole buffer out, if the buffer can be its target from the start."""
    if statement.scope != "local" or statement.init is not None or statement.counts:
        return None
    name = statement.name
    copies = [s for s in rest if isinstance(s, tree.Do) and s.dma.source == tree.Name(name)]
    found = copies[0] if copies else None
    if found is None or found.dma.kind != "copy" or found.dma.is_async or found.dma.after:
        return None
    target, place = found.dma.target, rest.index(found)
    if not isinstance(target, tree.Expr) or name in names(rest[place + 1 :]):
        return None
    before = rest[:place]
    output = root(target)
    same = {other for other, of in known.items() if output in of} | {output, *known.get(output, ())}
    if same & names(before) or names(target) & declared(before):
        return None
    if any(name in of for of in known.values()):
        return None
    for each in nodes(before):
        match each:
            case tree.Cpp() | tree.InThreads() | tree.Sync() | tree.Trigger():
                return None
            case tree.Dma() if name in names(each):
                return None
            case tree.Call() | tree.CallValue() if name in handed(each):
                return None
            case tree.SpanAs() if root(each) == name:
                return None
    return found
