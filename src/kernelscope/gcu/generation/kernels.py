"""What is known of one kernel besides its text."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelscope.gcu.choreo.syntax.tree import SCALARS
from kernelscope.gcu.lowering.dag import ELEMENT, INDEX, Access, Buffer, Dag
from kernelscope.gcu.lowering.fuse import Plan
from kernelscope.gcu.lowering.sizes import Size, equal, is_one, is_zero, literal, product, symbols_in, times

_RESERVED_WORDS = (
    "local", "shared", "global", "parallel", "by", "with", "foreach", "in", "if", "else", "while",
    "return", "wait", "call", "print", "println", "assert", "swap", "rotate", "select", "dma",
    "mutable", "event", "trigger", "sync", "inthreads", "auto", "void", "after", "data", "span",
    "at", "p", "o", "i", "index", "lf", "rf", "l1_out", "true", "false",
)  # fmt: skip
RESERVED = frozenset(_RESERVED_WORDS) | set(SCALARS)


def identifier(name: str) -> str:
    """A name that Choreo takes."""
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if not text or text[0].isdigit() or text in RESERVED or text == "_" or text.startswith("__"):
        text = f"t_{text.lstrip('_')}"
    return text


@dataclass
class Kernel:
    """One `__co__` function: its text, and the buffers that it is called with."""

    name: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)  # scalar parameters
    nodes: tuple[str, ...] = ()
    text: str = ""

    @property
    def returns(self) -> bool:
        return len(self.outputs) == 1


class Names:
    """Choreo names of buffers, and how elements of them are written."""

    def __init__(self, dag: Dag, used: list[str]) -> None:
        self._dag = dag
        self._names: dict[str, str] = {}
        self.symbols: set[str] = set()
        taken: set[str] = set()
        for buffer in used:
            name = identifier(buffer)
            while name in taken:
                name += "_"
            taken.add(name)
            self._names[buffer] = name

    def __getitem__(self, buffer: str) -> str:
        return self._names[buffer]

    def buffer(self, name: str) -> Buffer:
        return self._dag.buffers[name]

    def size(self, size: Size) -> str:
        """A size as text; its symbols will be parameters."""
        self.symbols |= symbols_in(size)
        return literal(size)

    def sizes(self, sizes: list[Size] | tuple[Size, ...]) -> str:
        return ", ".join(self.size(s) for s in sizes)

    def declared(self, name: str) -> str:
        """`f32 [2, 4] x`, as a parameter."""
        buffer = self.buffer(name)
        dims = []
        for d in buffer.dims:
            dims.append(str(d) if isinstance(d, int) else str(d) if getattr(d, "is_Symbol", False) else "?")
        return f"{ELEMENT[buffer.dtype]} [{', '.join(dims)}] {self[name]}"

    def bound(self, used: list[str]) -> set[str]:
        """The symbols that the arguments' shapes tell."""
        dims = [d for name in used for d in self.buffer(name).dims]
        return {str(d) for d in dims if getattr(d, "is_Symbol", False)}

    def shaped(self, name: str, shape: list[Size]) -> str:
        """The buffer with another shape."""
        buffer = self.buffer(name)
        own = buffer.dims
        if len(own) == len(shape) and all(equal(a, b) for a, b in zip(own, shape, strict=True)):
            return self[name]
        return f"{self[name]}.span_as([{self.sizes(shape)}])"

    def element(self, access: Access, dims: list[Size], index: list[str]) -> str:
        """One element, given where we are in each dimension."""
        if access.buffer == INDEX:
            return f"({self._flat(access, index)})"
        covered = covers(access, dims, self.buffer(access.buffer))
        if covered is not None:
            shape = [dims[i] for i in covered] or [1]
            at = ", ".join(index[i] for i in covered) or "0"
            return f"{self.shaped(access.buffer, shape)}.at({at})"
        buffer = self.buffer(access.buffer)
        extent = product(buffer.dims)
        return f"{self.shaped(access.buffer, [extent])}.at({self._flat(access, index)})"

    def _flat(self, access: Access, index: list[str]) -> str:
        terms = []
        for at, stride in zip(index, access.strides, strict=True):
            if is_zero(stride) or at == "0":
                continue
            one = is_one(stride)
            terms.append(f"({at})" if one else f"({at}) * ({self.size(stride)})")
        if not is_zero(access.offset):
            terms.append(f"({self.size(access.offset)})")
        return " + ".join(terms) or "0"


def covers(access: Access, dims: list[Size], buffer: Buffer) -> list[int] | None:
    """The dimensions whose indices, in order, are the indices of the whole buffer; None if it is not that."""
    if not is_zero(access.offset) or not buffer.is_dense:
        return None
    used = [i for i, s in enumerate(access.strides) if not is_zero(s) and not is_one(dims[i])]
    step: Size = 1
    for i in reversed(used):
        if not equal(access.strides[i], step):
            return None
        step = times(step, dims[i])
    return used if equal(step, product(buffer.shape)) else None


def needed_outside(made: Plan, dag: Dag) -> list[str]:
    """The buffers that others read, or that the graph returns."""
    inside = {n.name for n in made.nodes}
    read = {b for n in dag.nodes if n.name not in inside for b in n.reads}
    return [n.output for n in made.nodes if n.output in read or n.output in dag.outputs]
