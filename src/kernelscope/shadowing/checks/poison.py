"""Memory before a launch: uninitialised outputs are filled, so that what a kernel leaves out is noticed."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

import torch
from torch.fx import Node

from kernelscope.probes.bus import BUS
from kernelscope.probes.launch import Launch
from kernelscope.shadowing.reference.graph_walk import concrete_shape
from kernelscope.shadowing.reference.node_kinds import value_of

_POISON = {torch.bool: True, torch.uint8: 0xA5}


def poison(launch: Launch, kept: Container[str]) -> list[str]:
    """All but the variables whose contents are still needed; returns why something could not be filled."""
    problems = []
    for i in launch.uninitialised:
        tensor = launch.flat[i]
        if i not in launch.point.written or tensor.layout is not torch.strided or not tensor.numel():
            continue
        arg = launch.site.args[i]
        if arg.wrapper_name in kept or (arg.role == "inout" and not BUS.storages.is_untouched(tensor)):
            continue  # in doubt a kernel that also reads it needs what is there
        try:
            tensor.fill_(_poison_of(tensor))
        except (RuntimeError, TypeError, NotImplementedError):  # float4, quantized dtypes
            why = "cannot be filled beforehand: elements that a kernel skips are not noticed"
            problems.append(f"memory of {tensor.dtype} {why}")
    return problems


def is_poisoned(tensor: Any) -> bool:
    """Whether a kernel that had this as an output left it alone: it need not store what is not read."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or not tensor.numel():
        return True
    first = tensor[(0,) * tensor.dim()]
    try:
        poison = _poison_of(tensor)
    except TypeError:  # not filled: it may hold anything
        return True
    return math.isnan(abs(first.item())) if math.isnan(poison) else bool(first == poison)


def _poison_of(tensor: torch.Tensor) -> float:
    if tensor.is_floating_point() or tensor.is_complex():
        return math.nan
    return _POISON[tensor.dtype] if tensor.dtype in _POISON else torch.iinfo(tensor.dtype).min + 0x55


def nothing_in(node: Node, symbols: Mapping[str, Any], *, offload: bool) -> torch.Tensor:
    """In place of uninitialised memory."""
    fake = value_of(node)
    device = "cpu" if offload else fake.device
    made = torch.empty(concrete_shape(fake, symbols), dtype=fake.dtype, device=device)
    return made.fill_(math.nan) if made.is_floating_point() else made.zero_()


def overwrites(launch: Launch, inputs: Any) -> bool:
    """Whether the launch writes to memory that the reference still has to read."""
    written = {launch.flat[i].untyped_storage()._cdata for i in launch.point.written}
    tensors = (value for value in inputs if isinstance(value, torch.Tensor))
    return any(tensor.untyped_storage()._cdata in written for tensor in tensors)
