"""Buffers that a function reads although nothing in it writes to them."""

from __future__ import annotations

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.choreo.syntax.walk import names, nodes, read, roots, written


def check_unwritten(function: tree.Function) -> None:
    """Refuse to read what was never written; what another name or C++ may write is left alone."""
    body = function.body
    known = written(body) | {p.name for p in function.parameters}
    for each in nodes(body):
        match each:
            case tree.Cpp():
                return  # which may write to anything
            case tree.Return() if each.value is not None:
                known |= roots(each.value)
            case tree.Assign() if not isinstance(each.value, tree.Dma):
                known |= names(each.value)  # it may be written through this name
    used = read(body)
    for each in nodes(body):
        if isinstance(each, tree.DeclareBuffer) and each.init is None and each.name in used - known:
            message = f"`{each.name}` is read, but nothing writes to it"
            raise ChoreoError(f"{message}; copy data into it, or give it a first value: `{{0}}`", each.span)
