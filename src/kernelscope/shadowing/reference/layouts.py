"""Operators that look at how a tensor lies in memory: as the compiler had it, not as eager leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from .graph_walk import concrete_sizes
from .node_kinds import BY_MEMORY, aten, value_of

_ROW = 16  # elements


def depends_on_memory(node: Node) -> bool:
    """Its value depends on how its argument lies in memory."""
    return node.target in BY_MEMORY


def as_compiled(node: Node, args: Any, symbols: Mapping[str, Any]) -> Any:
    """The arguments of an operator that depends on the layout, the first laid out as the compiler had it."""
    source = node.args[0] if node.args else None
    if node.target not in BY_MEMORY or not isinstance(source, Node) or not isinstance(args[0], torch.Tensor):
        return args
    fake, value = value_of(source), args[0]
    if not isinstance(fake, torch.Tensor) or fake.is_sparse:
        return args
    try:  # compared as numbers: to compare a symbol with a number makes it a constant for the compiler
        shape, strides = (concrete_sizes(each, symbols) for each in (fake.shape, fake.stride()))
    except KeyError:  # an unknown size
        return args
    if tuple(value.shape) != shape or value.stride() == strides:
        return args
    laid_out = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return (laid_out.copy_(value), *args[1:])


def viewed(target: Any, args: Any, kwargs: Any) -> Any:
    """A view has the same values, whether they can be looked at in place or not."""
    if target is not aten.view.default:
        return target(*args, **kwargs)
    try:
        return target(*args, **kwargs)
    except RuntimeError:
        return torch.reshape(*args)


def with_aligned_bias(target: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Attention on a GPU insists on aligned rows of its bias; Inductor aligns them when it lowers."""
    schema = getattr(target, "_schema", None)
    if schema is None or "attention" not in schema.name:
        return args, kwargs
    names = [argument.name for argument in schema.arguments]
    place = next((names.index(name) for name in ("attn_bias", "bias") if name in names), len(names))
    if place >= len(args):
        given = kwargs.get("attn_bias")
        return args, kwargs | {"attn_bias": aligned(given)} if isinstance(given, torch.Tensor) else kwargs
    if not isinstance(args[place], torch.Tensor):
        return args, kwargs
    return (*args[:place], aligned(args[place]), *args[place + 1 :]), kwargs


def aligned(value: torch.Tensor) -> torch.Tensor:
    """The same values, with rows that start at multiples of 16 elements; what is expanded stays so."""
    if value.dim() < 2 or (value.stride(-1) == 1 and all(s % _ROW == 0 for s in value.stride()[:-1])):
        return value
    whole = value
    for i, (size, stride) in enumerate(zip(value.shape[:-1], value.stride()[:-1], strict=True)):
        if size > 1 and stride == 0:
            whole = whole.narrow(i, 0, 1)
    length = value.shape[-1]
    rows = whole.new_empty((*whole.shape[:-1], -(-length // _ROW) * _ROW))[..., :length]
    return rows.copy_(whole).expand(value.shape)


def laid_out(value: torch.Tensor, strides: tuple[int, ...], *, is_written: bool) -> torch.Tensor:
    """The same with these strides, and in memory of its own where something writes to it."""
    if not is_written and (value.stride() == strides or 0 in strides):
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
