"""What to write instead of an assignment that cannot be."""

from __future__ import annotations

from kernelscope.gcu.choreo.cpp.values import Bounded, Buffers, Data, Future, Scalar, Value
from kernelscope.gcu.choreo.syntax import tree


def of_assignment(name: str, known: Value | None, parameters: tuple[tree.Parameter, ...]) -> str:
    """The sentence for `name = …` where the name is not a mutable scalar."""
    what = "not declared" if known is None else "not a mutable scalar"
    return f"`{name}` is {what}, so it cannot be assigned to{_advice(name, known, parameters)}"


def _advice(name: str, known: Value | None, parameters: tuple[tree.Parameter, ...]) -> str:
    match known:
        case None:
            return f"; write `mutable` and its first value before: `mutable {name} = …;`"
        case Scalar() if any(p.name == name for p in parameters):
            return f"; a parameter keeps its value, so copy it: `mutable other = {name};`"
        case Scalar():
            return "; declare it `mutable`"
        case Data():
            return f"; write `{name}.at(…) = …;` for an element, `dma.copy … => {name};` for all of them"
        case Buffers():
            return f"; it is an array of buffers: write `dma.copy … => {name}[…];`"
        case Future():
            return f"; it is a future, which only a DMA fills: `{name} = dma.copy …;`"
        case Bounded():
            return "; only its loop or `parallel` gives it a value"
    return "; choose another name"
