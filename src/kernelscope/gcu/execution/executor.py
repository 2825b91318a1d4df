"""Running a compiled graph: kernels and ATen calls, one after another.

`Launch.run`, `AtenCall.run` and `CompiledGraph.__call__` are looked up on their classes at every call, so
that a probe can put itself there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from kernelscope.gcu.generation.kernels import Kernel
from kernelscope.gcu.lowering.sizes import Size, symbols_in
from kernelscope.late_modules import loaded

from .program import Program

Registers = list[Any]
_empty = torch.empty_strided
_CPU = torch.device("cpu")  # always given: the default device may be another


def size_reader(sizes: tuple[Size, ...], symbols: dict[str, int]) -> Callable[[Registers], tuple[int, ...]]:
    """A function from registers to sizes; `symbols` says in which register each symbol is."""
    if all(isinstance(s, int) for s in sizes):
        fixed = tuple(int(s) for s in sizes)
        return lambda registers: fixed
    import sympy
    from torch.utils._sympy import functions

    names = sorted(set().union(*(symbols_in(s) for s in sizes)))
    function = sympy.lambdify(
        [sympy.Symbol(n, integer=True) for n in names],
        [*map(_renamed, sizes)],
        modules=[vars(functions), "math"],  # FloorDiv and its like are torch's own
    )
    places = [symbols[n] for n in names]
    return lambda registers: tuple(int(x) for x in function(*(registers[p] for p in places)))


def _renamed(size: Size) -> Any:
    """Without the assumptions that torch puts on symbols, which lambdify distinguishes."""
    import sympy

    if isinstance(size, int):
        return size
    return size.subs({s: sympy.Symbol(str(s), integer=True) for s in size.free_symbols})


def laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """The tensor with these strides: itself if it has them, else a copy."""
    if tensor.stride() == stride:
        return tensor
    made = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


@dataclass
class Output:
    register: int
    shape: Callable[[Registers], tuple[int, ...]]
    stride: Callable[[Registers], tuple[int, ...]]
    dtype: torch.dtype
    sizes: tuple[tuple[Size, ...], tuple[Size, ...]]  # what these compute
    static: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass
class Launch:
    """One kernel of the graph, and where its arguments are."""

    kernel: Kernel
    program: Program | None  # None: there is nothing to compute, only to allocate
    inputs: list[int]
    outputs: list[Output]
    symbols: Callable[[Registers], tuple[int, ...]]
    arg_names: tuple[str, ...] = ()
    origin: str = ""
    source: str = ""
    free: tuple[int, ...] = ()
    graph: CompiledGraph | None = None
    entry: Callable[..., int] | None = None
    is_static: bool = True
    scalars: int = 0  # how many of the symbols are parameters of a kernel that returns its output
    sizes: tuple[Size, ...] = ()  # what `symbols` computes
    fx: tuple[torch.fx.Node, ...] = ()  # what the kernel computes

    def __call__(self, registers: Registers) -> None:
        tensors = [registers[i] for i in self.inputs]
        for output in self.outputs:
            if output.static is not None:
                made = _empty(*output.static, dtype=output.dtype, device=_CPU)
            else:
                shape, stride = output.shape(registers), output.stride(registers)
                made = _empty(shape, stride, dtype=output.dtype, device=_CPU)
            registers[output.register] = made
            tensors.append(made)
        if self.entry is not None:
            self.run(tensors, () if self.is_static else self.symbols(registers))
        for i in self.free:
            registers[i] = None

    def run(self, tensors: Sequence[torch.Tensor], symbols: tuple[int, ...]) -> None:
        """The launch itself."""
        pointers = [t.data_ptr() for t in tensors]
        if self.scalars:  # parameters come before what is returned
            pointers[len(self.inputs) : len(self.inputs)] = symbols[: self.scalars]
            symbols = symbols[self.scalars :]
        if self.entry(*pointers, *symbols):  # type: ignore[misc]
            assert self.program is not None
            raise RuntimeError(self.program.failure())


@dataclass
class AtenCall:
    """One operator that runs through ATen, or a view that one needs."""

    target: Any
    args: Any
    kwargs: dict[str, Any]
    register: int
    name: str
    is_view: bool = False
    stride: Callable[[Registers], tuple[int, ...]] | None = None
    sizes: tuple[Size, ...] = ()  # what `stride` computes
    fx: tuple[torch.fx.Node, ...] = ()
    origin: str = ""
    free: tuple[int, ...] = ()
    graph: CompiledGraph | None = None

    def __call__(self, registers: Registers) -> None:
        def value(x: torch.fx.Node) -> Any:
            return registers[self.places[x]]

        args = torch.fx.node.map_arg(self.args, value)
        kwargs = torch.fx.node.map_arg(self.kwargs, value)
        result = self.run(args, kwargs)
        if self.stride is not None:  # ATen may choose another layout than it had announced
            result = laid_out(result, self.stride(registers))
        registers[self.register] = result
        for i in self.free:
            registers[i] = None

    places: dict[torch.fx.Node, int] = field(default_factory=dict)

    def run(self, args: Any, kwargs: dict[str, Any]) -> Any:
        return self.target(*args, **kwargs)


@dataclass(frozen=True)
class Check:
    """The strides that an input must have."""

    register: int
    stride: Callable[[Registers], tuple[int, ...]]
    sizes: tuple[Size, ...]  # what it computes


@dataclass(frozen=True)
class GraphCode:
    """What a call of a graph does, as a Python program."""

    text: str
    lines: dict[int, int]  # by position among the steps: where it stands

    def line_of(self, position: int) -> int:
        return self.lines.get(position, 0)


_numbers: dict[str, itertools.count[int]] = {}  # how many graphs of a name there were


@dataclass
class CompiledGraph:
    """A graph that runs: what AOTAutograd gets back."""

    name: str
    direction: str
    inputs: int
    steps: list[Launch | AtenCall]
    outputs: list[Any]  # registers, or constants
    constants: dict[int, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # by register
    compile_id: str = ""
    # Strides that inputs must have.
    checks: list[Check] = field(default_factory=list)
    code: GraphCode | None = None  # once `graph_code.code_of` has written it
    _boxed_call: bool = True

    def __post_init__(self) -> None:
        number = next(_numbers.setdefault(self.name, itertools.count(1)))
        # Equal graphs may be compiled for several functions, and each is known by its path.
        self.path = f"{self.name}.py" if number == 1 else f"{self.name}.{number}.py"

    def __call__(self, args: list[Any]) -> list[Any]:
        registers: Registers = [*args, *([None] * (len(self.names) - len(args)))]
        args.clear()
        for place, constant in self.constants.items():
            registers[place] = constant
        for check in self.checks:
            registers[check.register] = laid_out(registers[check.register], check.stride(registers))
        for step in self.steps:
            step(registers)
        return [registers[o.register] if isinstance(o, Result) else o for o in self.outputs]


@dataclass(frozen=True)
class Result:
    """An output that is in a register."""

    register: int


loaded(__name__)
