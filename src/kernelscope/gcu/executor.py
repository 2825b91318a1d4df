"""Running a compiled graph: kernels and ATen calls, one after another.

`Launch.run`, `AtenCall.run` and `CompiledGraph.__call__` are looked up on their classes at every call, so
that a probe can put itself there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .kernels import Kernel
from .program import Program
from .sizes import Size, symbols_in

Slots = list[Any]
_empty = torch.empty_strided
_CPU = torch.device("cpu")  # said each time: the default device may be another


@dataclass(frozen=True)
class Sized:
    """Sizes that may depend on the inputs."""

    sizes: tuple[Size, ...]

    def reader(self, symbols: dict[str, int]) -> Callable[[Slots], tuple[int, ...]]:
        """A function from slots to numbers; `symbols` says in which slot each symbol is."""
        if all(isinstance(s, int) for s in self.sizes):
            fixed = tuple(int(s) for s in self.sizes)
            return lambda slots: fixed
        import sympy
        from torch.utils._sympy import functions

        names = sorted(set().union(*(symbols_in(s) for s in self.sizes)))
        function = sympy.lambdify(
            [sympy.Symbol(n, integer=True) for n in names],
            [*map(_renamed, self.sizes)],
            modules=[vars(functions), "math"],  # FloorDiv and its like are torch's own
        )
        places = [symbols[n] for n in names]
        return lambda slots: tuple(int(x) for x in function(*(slots[p] for p in places)))


def _renamed(size: Size) -> Any:
    """Without the assumptions that torch puts on symbols, which lambdify tells apart."""
    import sympy

    if isinstance(size, int):
        return size
    return size.subs({s: sympy.Symbol(str(s), integer=True) for s in size.free_symbols})


@dataclass
class Output:
    slot: int
    shape: Callable[[Slots], tuple[int, ...]]
    stride: Callable[[Slots], tuple[int, ...]]
    dtype: torch.dtype
    static: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass
class Launch:
    """One kernel of the graph, and where its arguments are."""

    kernel: Kernel
    program: Program | None  # None: there is nothing to compute, only to allocate
    inputs: list[int]
    outputs: list[Output]
    symbols: Callable[[Slots], tuple[int, ...]]
    arg_names: tuple[str, ...] = ()
    origin: str = ""
    source: str = ""
    free: tuple[int, ...] = ()
    graph: CompiledGraph | None = None
    entry: Callable[..., int] | None = None
    is_static: bool = True
    scalars: int = 0  # how many of the symbols are parameters of a kernel that returns its output

    def __call__(self, slots: Slots) -> None:
        tensors = [slots[i] for i in self.inputs]
        for output in self.outputs:
            if output.static is not None:
                made = _empty(*output.static, dtype=output.dtype, device=_CPU)
            else:
                shape, stride = output.shape(slots), output.stride(slots)
                made = _empty(shape, stride, dtype=output.dtype, device=_CPU)
            slots[output.slot] = made
            tensors.append(made)
        if self.entry is not None:
            self.run(tensors, () if self.is_static else self.symbols(slots))
        for i in self.free:
            slots[i] = None

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
    """One operator that runs through ATen, or a view that such an operator needs."""

    target: Any
    args: Any
    kwargs: dict[str, Any]
    slot: int
    name: str
    is_view: bool = False
    stride: Callable[[Slots], tuple[int, ...]] | None = None
    origin: str = ""
    free: tuple[int, ...] = ()
    graph: CompiledGraph | None = None

    def __call__(self, slots: Slots) -> None:
        def value(x: torch.fx.Node) -> Any:
            return slots[self.places[x]]

        args = torch.fx.node.map_arg(self.args, value)
        kwargs = torch.fx.node.map_arg(self.kwargs, value)
        result = self.run(args, kwargs)
        if self.stride is not None:
            expected = self.stride(slots)
            if result.stride() != expected:  # ATen chose another layout than it had announced
                fixed = torch.empty_strided(result.shape, expected, dtype=result.dtype, device=result.device)
                result = fixed.copy_(result)
        slots[self.slot] = result
        for i in self.free:
            slots[i] = None

    places: dict[torch.fx.Node, int] = field(default_factory=dict)

    def run(self, args: Any, kwargs: dict[str, Any]) -> Any:
        return self.target(*args, **kwargs)


@dataclass
class CompiledGraph:
    """A graph that runs: what AOTAutograd gets back."""

    name: str
    direction: str
    inputs: int
    slots: int
    steps: list[Launch | AtenCall]
    outputs: list[Any]  # slots, or constants
    constants: dict[int, Any] = field(default_factory=dict)
    source: str = ""
    # Strides that inputs must have.
    checks: list[tuple[int, Callable[[Slots], tuple[int, ...]]]] = field(default_factory=list)
    _boxed_call: bool = True

    def __call__(self, args: list[Any]) -> list[Any]:
        slots: Slots = [*args, *([None] * (self.slots - len(args)))]
        args.clear()
        for place, constant in self.constants.items():
            slots[place] = constant
        for place, expected in self.checks:
            given, stride = slots[place], expected(slots)
            if given.stride() != stride:
                fixed = torch.empty_strided(given.shape, stride, dtype=given.dtype, device=given.device)
                slots[place] = fixed.copy_(given)
        for step in self.steps:
            step(slots)
        return [slots[o.slot] if isinstance(o, _Slot) else o for o in self.outputs]


@dataclass(frozen=True)
class _Slot:
    slot: int


def result(slot: int) -> _Slot:
    return _Slot(slot)
