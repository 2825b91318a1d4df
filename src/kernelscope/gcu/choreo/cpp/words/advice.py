"""What to write instead of what cannot be."""

from __future__ import annotations

from kernelscope.gcu.choreo.builtins import builtin
from kernelscope.gcu.choreo.cpp.shapes import shown
from kernelscope.gcu.choreo.cpp.values import Bounded, Buffers, Data, Events, Future, Scalar, Several, Value
from kernelscope.gcu.choreo.syntax import tree

OF_ELEMENTS = "an element of data is written `.at(i, j)`, not as in host code"


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


def of_number(value: Value) -> str:
    """The sentence where a program needs one number and has something else."""
    match value:
        case Data() | Future():
            data = value if isinstance(value, Data) else value.data
            shape = "" if data is None else f" of shape {shown(data.shape)}"
            return f"a number is expected here, not data{shape}; write `.at(…)` for one of its elements"
        case Several():
            many = f"{len(value.items)} numbers"
            return f"a number is expected here, not {many}; name one of them by its place: `x.span(0)`"
        case Buffers():
            return "a number is expected here, not an array of buffers; write `b[…].at(…)` for an element"
        case Events():
            return "a number is expected here, not an event; an event is only triggered and waited for"
    return "a number is expected here"


def of_undeclared_call(name: str) -> str:
    """The sentence for `f(x)` where no variable has that name."""
    if builtin(f"__{name}"):
        return f"`{name}` is not declared; in Choreo it is `__{name}(…)`"
    return f"`{name}` is not declared; a function of the C++ in this file is called by `call {name}(…)`"
