"""Which nodes are wrong by themselves: one of each sort in one graph, each with its own inputs.

One compilation can replace many trials of a search. Its result is a guess, and is tried like any other part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from kernelscope.compiler_control.forced_settings import without_caches

from .candidates import Candidate, comparable, constant_of, copied, layout_of, work_of

_NEAR = 1e-3  # of the largest value: the result only decides what is tried first
_ROUNDINGS = 4  # or as many of the dtype's: a sum may be taken in another order


@dataclass(frozen=True, slots=True)
class Single:
    """A node with its inputs."""

    node: Node
    sort: str  # the same for nodes that are compiled to the same code
    given: tuple[Any, ...]


def wrong_nodes(singles: Sequence[Single], values: Mapping[str, Any], *, dynamic: bool = False) -> list[str]:
    """The names of those whose result differs from eager; raises what the compiler raises."""
    by_sort: dict[str, list[Single]] = {}
    for single in singles:
        by_sort.setdefault(single.sort, []).append(single)
    found: set[str] = set()
    try:
        with without_caches(), torch.no_grad():
            compiled = _compiled([same[0] for same in by_sort.values()], dynamic=dynamic)
            for number in range(max(map(len, by_sort.values()))):
                these = [same[min(number, len(same) - 1)] for same in by_sort.values()]
                results = compiled(*[copied(v) for single in these for v in single.given])
                found |= _unlike(these, results, values)
    finally:
        if dynamic:
            torch.compiler.reset()
    return [single.node.name for single in singles if single.node.name in found]


def _compiled(singles: Sequence[Single], *, dynamic: bool) -> Callable[..., Any]:
    module = joint_module(singles)
    if dynamic:
        return torch.compile(module, dynamic=True)
    with FakeTensorMode():
        inputs = [_like(v) for single in singles for v in single.given]
    return cast(Callable[..., Any], compile_fx(module, inputs))


def joint_module(singles: Sequence[Single]) -> GraphModule:
    """One graph in which each node has its own inputs."""
    graph = Graph()
    inputs = [
        {n: graph.placeholder(f"{single.node.name}_{n.name}") for n in single.node.all_input_nodes}
        for single in singles
    ]
    made = [graph.node_copy(s.node, names.__getitem__) for s, names in zip(singles, inputs, strict=True)]
    for node in made:
        node.meta = {}  # of another trace
    graph.output(tuple(made))
    return GraphModule(torch.nn.Module(), graph)


def key_of(singles: Sequence[Single]) -> str:
    """The same for nodes that are compiled to the same code."""
    sorts = dict.fromkeys(single.sort for single in singles)
    return hashlib.sha256("\n".join(["each by itself", *sorts]).encode()).hexdigest()[:24]


def singles_of(candidate: Candidate, values: Mapping[str, Any]) -> list[Single]:
    """The nodes of a graph that can be compiled alone, with the inputs that eager computes for them."""

    def value_of(node: Node) -> Any:
        is_constant = node.op == "get_attr"
        return constant_of(candidate.module, node) if is_constant else values.get(node.name)

    found, names = [], set(comparable(candidate))
    for node in work_of(candidate.module):
        if node.name not in names or not isinstance(value_of(node), torch.Tensor):
            continue
        given = [_dense(value_of(n)) for n in node.all_input_nodes]
        if all(_is_fixed(v) or (candidate.dynamic and isinstance(v, int | float)) for v in given):
            found.append(Single(node, _sort(node, given), tuple(given)))
    return found


def _is_fixed(value: Any) -> bool:
    """A tensor without symbolic sizes."""
    return isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape)


def _sort(node: Node, given: Sequence[Any]) -> str:
    looks = {
        n: f"<{i} {layout_of(v)}>" for i, (n, v) in enumerate(zip(node.all_input_nodes, given, strict=True))
    }
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: _Text(looks[n]))
    return f"{node.op} {node.target} {args} {kwargs}"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _dense(value: Any) -> Any:
    """In memory without gaps, as the inputs of a part of a graph are."""
    if not _is_fixed(value) or torch.empty_like(value).stride() == value.stride():
        return value
    return value.detach().clone()


def _like(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout; a fake one under FakeTensorMode."""
    return torch.empty_strided(
        tuple(value.shape), tuple(value.stride()), dtype=value.dtype, device=value.device
    )


def _unlike(singles: Sequence[Single], results: Sequence[Any], values: Mapping[str, Any]) -> set[str]:
    pairs = zip((single.node.name for single in singles), results, strict=True)
    return {name for name, result in pairs if name in values and not is_near(result, values[name])}


def is_near(result: Any, value: torch.Tensor) -> bool:
    """Whether they differ by no more than rounding explains."""
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
