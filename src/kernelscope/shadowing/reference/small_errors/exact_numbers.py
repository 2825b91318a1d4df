"""What an operator computes without any rounding: a different number there is a mistake, however small.

Numbers at a boundary (`x.round() < 1`) stay there, so that a wrong comparison is not taken for rounding.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.shadowing.reference.node_kinds import aten, prims

_WHOLE = {
    aten.round, aten.floor, aten.ceil, aten.trunc, aten.sign, aten.sgn,
    aten.round_, aten.floor_, aten.ceil_, aten.trunc_, aten.sign_, aten.sgn_,
    prims.round, prims.floor, prims.ceil, prims.trunc,
}  # fmt: skip
# IEEE 754 wants the number that is nearest to the exact one, so one that the dtype holds is the exact one.
_NEAREST = {
    aten.add, aten.sub, aten.rsub, aten.mul, aten.add_, aten.sub_, aten.mul_,
    aten._to_copy, aten.copy, aten.copy_, prims.convert_element_type,
}  # fmt: skip
_QUOTIENTS = {aten.div, aten.div_}  # Triton's is off by up to two roundings


def makes_whole_numbers(operator: Any) -> bool:
    """Rounds to integers, not to a number of decimals."""
    is_whole = getattr(operator, "overloadpacket", None) in _WHOLE
    return is_whole and getattr(operator, "_overloadname", "") != "decimals"


def where_not_exact(
    moved: torch.Tensor, value: torch.Tensor, operator: Any, args: Any, kwargs: Any, dtype: torch.dtype | None
) -> torch.Tensor:
    """`moved`, a result in float64 with an error, but `value` where a result of this dtype has none."""
    if dtype is None or not dtype.is_floating_point or not value.is_floating_point():
        return moved
    packet = getattr(operator, "overloadpacket", None)
    is_nearest = packet in _NEAREST or (packet in _QUOTIENTS and value.device.type == "cpu")
    if not is_nearest or kwargs.get("alpha", 1) != 1 or kwargs.get("rounding_mode") is not None:
        return moved
    if not all(_holds(dtype, each) for each in args):
        return moved  # a constant that is rounded itself, here and there in different ways
    return torch.where(value == value.to(dtype), value, moved)


def _holds(dtype: torch.dtype, part: Any) -> bool:
    """Of numbers, which a dispatch mode sees as tensors without dimensions."""
    if isinstance(part, torch.Tensor) and part.dim() == 0 and part.device.type == "cpu":
        part = float(part) if part.is_floating_point() else 0
    return not isinstance(part, int | float) or float(torch.tensor(part, dtype=dtype)) == part
