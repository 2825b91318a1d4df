"""Smaller inputs: other dtypes, shapes and values, one change at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from .candidates import Candidate, copied

_SMALL = (1, 2, 3, 4, 8, 16, 32, 64)


def shrink(candidate: Candidate, fails: Callable[[Candidate], bool]) -> Candidate:
    """Keep every change after which it fails in the same way; what does not run in eager is not tried."""
    least = smallest(candidate)
    if least is not None and fails(least):
        return least
    for changes in (_dtypes, _shapes, _values):
        for change in list(changes(candidate)):
            made = change(candidate)
            if made is not None and _runs(made) and fails(made):
                candidate = made
    return candidate


Change = Callable[[Candidate], "Candidate | None"]


def smallest(candidate: Candidate) -> Candidate | None:
    """Every change at once: nothing smaller is ever tried. None if that does not run, or changes nothing."""
    made: Candidate | None = candidate
    changes: list[Change] = [*_dtypes(candidate), partial(_cut_all, sizes=_sizes(candidate))]
    for change in [*changes, *_ones(candidate)]:
        made = (change(made) or made) if made is not None else None
    return made if made is not None and made is not candidate and _runs(made) else None


def _dtypes(candidate: Candidate) -> Iterator[Change]:
    """float32 in place of a narrower float, everywhere at once."""
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        if any(isinstance(v, torch.Tensor) and v.dtype == dtype for v in candidate.inputs):
            yield partial(_recast, dtype=dtype)


def _recast(candidate: Candidate, dtype: torch.dtype) -> Candidate:
    def cast(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype == dtype else value

    module = _rewritten(candidate.module, lambda part: torch.float32 if part is dtype else part)
    return replace(candidate, module=module, inputs=[copied(cast(v)) for v in candidate.inputs])


def _shapes(candidate: Candidate) -> Iterator[Change]:
    """All sizes at once; then each that is left, everywhere, from the smallest on."""
    ordered = _sizes(candidate)
    if len(ordered) > 1:
        yield partial(_cut_all, sizes=ordered)
    for size in ordered:
        for small in _SMALL:
            if small < size:
                yield partial(_cut, size=size, small=small)


def _sizes(candidate: Candidate) -> list[int]:
    sizes = {n for v in candidate.inputs if isinstance(v, torch.Tensor) for n in v.shape if n > 1}
    return sorted(sizes, reverse=True)


def _cut_all(candidate: Candidate, sizes: list[int]) -> Candidate | None:
    made: Candidate | None = candidate
    for size in sizes:
        made = _cut(made, size, 1) if made is not None else None
    return made


def _cut(candidate: Candidate, size: int, small: int) -> Candidate | None:
    if not any(isinstance(v, torch.Tensor) and size in v.shape for v in candidate.inputs):
        return None  # a smaller one has worked already

    def cut(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return small if isinstance(value, int) and value == size else value
        for dim, length in enumerate(value.shape):
            if length == size:
                value = value.narrow(dim, 0, small)
        if not value.is_floating_point() and value.dtype != torch.bool and value.numel():
            value = value.clamp(max=small - 1) if int(value.max()) < size else value  # an index
        return value

    def size_of(part: Any) -> Any:
        return small if isinstance(part, int) and not isinstance(part, bool) and part == size else part

    module = _rewritten(candidate.module, size_of)
    return replace(candidate, module=module, inputs=[_compact(cut(v), v) for v in candidate.inputs])


def _compact(value: Any, like: Any) -> Any:
    """In memory of its own, its dimensions in the order in which they were."""
    if not isinstance(value, torch.Tensor):
        return value
    order = sorted(range(value.dim()), key=lambda dim: -like.stride(dim))
    back = [order.index(dim) for dim in range(value.dim())]
    dense = value.detach().permute(order).contiguous().permute(back)
    return dense.clone().requires_grad_(like.requires_grad)


def _ones(candidate: Candidate) -> Iterator[Change]:
    for place, value in enumerate(candidate.inputs):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            yield partial(_changed, place=place, how="ones", change=torch.ones_like)


def _values(candidate: Candidate) -> Iterator[Change]:
    """Simple numbers: ones, else few digits."""
    for place, value in enumerate(candidate.inputs):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            yield partial(_changed, place=place, how="ones", change=torch.ones_like)
            yield partial(_changed, place=place, how="rounded", change=_rounded)


def _rounded(value: torch.Tensor) -> torch.Tensor:
    return value.mul(4).round().div(4)


def _changed(candidate: Candidate, place: int, how: str, change: Any) -> Candidate | None:
    if f"input {place}: " in candidate.note:
        return None
    inputs = list(candidate.inputs)
    with torch.no_grad():
        made = change(inputs[place])
    if torch.equal(made, inputs[place]):
        return None
    inputs[place] = made.detach().requires_grad_(inputs[place].requires_grad)
    return replace(candidate, inputs=inputs, note=f"{candidate.note} input {place}: {how}".strip())


def _rewritten(module: GraphModule, change: Callable[[Any], Any]) -> GraphModule:
    graph = type(module.graph)()
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        made = copies[node] = graph.node_copy(node, lambda n: copies[n])
        if node.op != "placeholder":
            made.args = map_aggregate(made.args, lambda p: p if isinstance(p, Node) else change(p))
            made.kwargs = map_aggregate(made.kwargs, lambda p: p if isinstance(p, Node) else change(p))
    return GraphModule(module, graph)


def _runs(candidate: Candidate) -> bool:
    try:
        with torch.no_grad():
            # Not called: a graph that is called prints what it raises.
            candidate.module.forward(*[copied(v) for v in candidate.inputs])
    except Exception:
        return False
    return True
