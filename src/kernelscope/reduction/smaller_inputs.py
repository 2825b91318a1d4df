"""Simpler inputs: other dtypes, shapes and values, one change at a time."""

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
    """Keep every change with which it fails in the same way; what does not run in eager is not tried."""
    least = smallest(candidate)
    if least is not None and fails(least):
        return least
    for changes in (_dtypes, _shapes, _values):
        for change in list(changes(candidate)):
            made = change(candidate)
            if made is not None and made.runs_in_eager() and fails(made):
                candidate = made
    return candidate


Change = Callable[[Candidate], "Candidate | None"]


def smallest(candidate: Candidate) -> Candidate | None:
    """All changes at once: the smallest that is ever tried. None if it does not run, or changes nothing."""
    made: Candidate | None = candidate
    changes: list[Change] = [*_dtypes(candidate), partial(_cut_all, sizes=_sizes(candidate))]
    for change in [*changes, *_values(candidate, ones_only=True)]:
        made = (change(made) or made) if made is not None else None
    return made if made is not None and made is not candidate and made.runs_in_eager() else None


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
    """All sizes at once; then each remaining one, everywhere it occurs, smallest first."""
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
        return None  # an earlier change has removed this size

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
    """In its own memory, with its dimensions in the same order."""
    if not isinstance(value, torch.Tensor):
        return value
    order = sorted(range(value.dim()), key=lambda dim: -like.stride(dim))
    back = [order.index(dim) for dim in range(value.dim())]
    dense = value.detach().permute(order).contiguous().permute(back)
    return dense.clone().requires_grad_(like.requires_grad)


def _values(candidate: Candidate, *, ones_only: bool = False) -> Iterator[Change]:
    """Simple numbers: ones, otherwise few digits."""
    for i, value in enumerate(candidate.inputs):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            yield partial(_changed, number=i, how="ones", change=torch.ones_like)
            if not ones_only:
                yield partial(_changed, number=i, how="rounded", change=_rounded)


def _rounded(value: torch.Tensor) -> torch.Tensor:
    return value.mul(4).round().div(4)


def _changed(candidate: Candidate, number: int, how: str, change: Any) -> Candidate | None:
    if f"input {number}: " in candidate.note:
        return None
    inputs = list(candidate.inputs)
    with torch.no_grad():
        made = change(inputs[number])
    if torch.equal(made, inputs[number]):
        return None
    inputs[number] = made.detach().requires_grad_(inputs[number].requires_grad)
    return replace(candidate, inputs=inputs, note=f"{candidate.note} input {number}: {how}".strip())


def _rewritten(module: GraphModule, change: Callable[[Any], Any]) -> GraphModule:
    graph = type(module.graph)()
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        made = copies[node] = graph.node_copy(node, lambda n: copies[n])
        if node.op != "placeholder":
            made.args = map_aggregate(made.args, lambda p: p if isinstance(p, Node) else change(p))
            made.kwargs = map_aggregate(made.kwargs, lambda p: p if isinstance(p, Node) else change(p))
    return GraphModule(module, graph)
