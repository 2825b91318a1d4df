"""Which nodes are wrong by themselves: one of each sort in one graph, each with inputs of its own.

One compilation tells what would take a search many. It is a guess all the same, and tried as any other part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import flop_registry

from kernelscope.compiler_control.forced_settings import without_caches
from kernelscope.compiler_control.lazy_kernels import AwaitedKernels

from .candidates import Candidate, comparable, constant_of, copied, work_of

_NEAR = 1e-3  # of the largest: this only chooses what is tried first
_ROUNDINGS = 4  # or as many of the dtype's: a sum in another order
_MOST_AHEAD = 40  # sorts of nodes that are compiled before anybody knows whether they are wanted

Look = Callable[[Node], Any]  # the value of a node, or a fake one; None: not known


@dataclass(frozen=True, slots=True)
class Single:
    """A node whose inputs are known."""

    node: Node
    sort: str  # the same for nodes that are compiled to the same code
    given: tuple[Any, ...]


class Singles:
    """Compiled code of single nodes: those of one sort share it."""

    def __init__(self, singles: Sequence[Single], *, dynamic: bool = False) -> None:
        self._dynamic = dynamic
        self._sorts = {single.sort: single for single in reversed(singles)}
        self._compiled: Callable[..., Any] | None = None
        self._kernels = AwaitedKernels(apart=True)

    @property
    def key(self) -> str:
        return hashlib.sha256("\n".join(["each by itself", *self._sorts]).encode()).hexdigest()[:24]

    def __len__(self) -> int:
        return len(self._sorts)

    def has(self, singles: Sequence[Single]) -> bool:
        return all(single.sort in self._sorts for single in singles)

    def compile(self) -> None:
        """The C++ compiler may still be at work when this returns."""
        module = self._module()
        if self._dynamic:
            self._compiled = torch.compile(module, dynamic=True)
            return
        with FakeTensorMode():
            inputs = [_like(v) for single in self._sorts.values() for v in single.given]
        self._kernels.install()
        try:
            with without_caches(), torch.no_grad():
                self._compiled = cast(Callable[..., Any], compile_fx(module, inputs))
        finally:
            self._kernels.remove()

    def close(self) -> None:
        """It is not called any more."""
        self._compiled = None
        self._kernels.let_go()

    def wrong(self, singles: Sequence[Single], values: Mapping[str, Any]) -> list[str]:
        """The names of those that do not compute what eager does; raises what the compiler does."""
        by_sort = {
            sort: [s for s in singles if s.sort == sort] or [_of_zeros(one)]
            for sort, one in self._sorts.items()
        }
        found: set[str] = set()
        try:
            if self._compiled is None:
                self.compile()
            assert self._compiled is not None
            with without_caches(), torch.no_grad():
                for number in range(max(map(len, by_sort.values()))):
                    these = [each[min(number, len(each) - 1)] for each in by_sort.values()]
                    results = self._compiled(*[copied(v) for single in these for v in single.given])
                    found |= _unlike(these, results, values)
        finally:
            if self._dynamic:
                torch._dynamo.reset()
        return [single.node.name for single in singles if single.node.name in found]

    def _module(self) -> GraphModule:
        graph = Graph()
        singles = list(self._sorts.values())
        own = [
            {n: graph.placeholder(f"{single.node.name}_{n.name}") for n in single.node.all_input_nodes}
            for single in singles
        ]
        made = [graph.node_copy(s.node, names.__getitem__) for s, names in zip(singles, own, strict=True)]
        for node in made:
            node.meta = {}  # of another trace
        graph.output(tuple(made))
        return GraphModule(torch.nn.Module(), graph)


def singles_of(candidate: Candidate, values: Mapping[str, Any]) -> list[Single]:
    """The nodes of a graph that can be compiled alone, with what eager computes for them."""

    def look(node: Node) -> Any:
        is_constant = node.op == "get_attr"
        return constant_of(candidate.module, node) if is_constant else values.get(node.name)

    return _singles(candidate.module, comparable(candidate), look, numbers=candidate.dynamic)


def ahead_of(modules: Sequence[GraphModule]) -> Singles | None:
    """Those of graphs that nobody has run yet; None where these are too few, or too many."""
    singles: list[Single] = []
    for module in modules:
        nodes = {node.name for node in module.graph.nodes if not _is_heavy(node)}
        names = nodes.intersection(comparable(Candidate(module, [])))
        singles += _singles(module, names, lambda node: node.meta.get("val"), numbers=False)
    made = Singles(singles)
    return made if len(singles) > 1 and len(made) <= _MOST_AHEAD else None


def _singles(module: GraphModule, names: Collection[str], look: Look, *, numbers: bool) -> list[Single]:
    found = []
    for node in work_of(module):
        given = [_dense(look(n)) for n in node.all_input_nodes]
        if node.name not in names or not isinstance(look(node), torch.Tensor):
            continue
        if all(_is_fixed(v) or (numbers and isinstance(v, int | float)) for v in given):
            found.append(Single(node, _sort(node, given), tuple(given)))
    return found


def _is_heavy(node: Node) -> bool:
    """A product or a convolution: ATen computes it, and it would be computed here for nothing."""
    return getattr(node.target, "overloadpacket", None) in flop_registry


def _is_fixed(value: Any) -> bool:
    """A tensor of sizes that are numbers."""
    return isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape)


def _sort(node: Node, given: Sequence[Any]) -> str:
    looks = {
        n: f"<{place} {_look_of(v)}>"
        for place, (n, v) in enumerate(zip(node.all_input_nodes, given, strict=True))
    }
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: _Text(looks[n]))
    return f"{node.op} {node.target} {args} {kwargs}"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _look_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device}"


def _dense(value: Any) -> Any:
    """As a part of a graph is given it, too: in memory without gaps."""
    if not _is_fixed(value) or torch.empty_like(value).stride() == value.stride():
        return value
    return value.detach().clone()


def _of_zeros(single: Single) -> Single:
    """One that nobody asks about has to be given something all the same; zeros are also indices."""
    return replace(single, given=tuple(_like(v).zero_() if _is_fixed(v) else v for v in single.given))


def _like(value: torch.Tensor) -> torch.Tensor:
    """Of the same sort; a fake one, where fakes are made."""
    return torch.empty_strided(
        tuple(value.shape), tuple(value.stride()), dtype=value.dtype, device=value.device
    )


def _unlike(singles: Sequence[Single], results: Sequence[Any], values: Mapping[str, Any]) -> set[str]:
    pairs = zip((single.node.name for single in singles), results, strict=True)
    return {name for name, result in pairs if name in values and not _is_near(result, values[name])}


def _is_near(result: Any, value: torch.Tensor) -> bool:
    if not isinstance(result, torch.Tensor) or result.shape != value.shape or result.dtype != value.dtype:
        return False
    if not (value.is_floating_point() or value.is_complex()):
        return torch.equal(result, value)
    near = max(_NEAR, _ROUNDINGS * torch.finfo(value.dtype).eps)
    wide = torch.complex128 if value.is_complex() else torch.float64
    result, value = result.detach().to(wide), value.detach().to(wide)
    finite = value[value.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(result, value, rtol=near, atol=near * largest, equal_nan=True)
