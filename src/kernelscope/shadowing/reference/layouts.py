"""Operators that look at how a tensor lies in memory: as the compiler had it, not as eager leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from .graph_walk import concrete_sizes
from .node_kinds import aten, value_of

_BY_MEMORY = {aten.as_strided.default, aten.view.dtype, aten.view_as_complex.default}


def depends_on_memory(node: Node) -> bool:
    """Its value depends on how its argument lies in memory."""
    return node.target in _BY_MEMORY


def as_compiled(node: Node, args: Any, symbols: Mapping[str, Any]) -> Any:
    """The arguments of an operator that depends on the layout, the first laid out as the compiler had it."""
    source = node.args[0] if node.args else None
    if node.target not in _BY_MEMORY or not isinstance(source, Node) or not isinstance(args[0], torch.Tensor):
        return args
    fake, value = value_of(source), args[0]
    if not isinstance(fake, torch.Tensor) or fake.is_sparse or fake.shape != value.shape:
        return args
    try:
        strides = concrete_sizes(fake.stride(), symbols)
    except KeyError:  # an unknown size
        return args
    if value.stride() == strides:
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
