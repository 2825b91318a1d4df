"""The order of equal numbers, which a sort that need not be stable may choose."""

from __future__ import annotations

from typing import Any

import torch

from kernelscope.shadowing.reference.node_kinds import aten, named_arguments

_MOST = 512  # sorted by a kernel of Inductor's own; more are left to ATen

_COMPARED = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64,
}  # fmt: skip


def chooses_order(operator: Any, kwargs: Any) -> bool:
    """A sort whose result may have equal numbers in any order."""
    return getattr(operator, "overloadpacket", None) is aten.sort and not kwargs.get("stable")


def sorted_by_inductor(operator: Any, args: Any, kwargs: Any) -> Any:
    """What a sort returns, with equal numbers in the order in which Inductor's kernels leave them."""
    named = {a.name: a.default_value for a in operator._schema.arguments}
    named |= named_arguments(operator._schema, args, kwargs)
    given, dim, descending = named["self"], named["dim"], named["descending"]
    result = operator(*args, **kwargs)  # its memory: later operators may depend on the strides
    if not given.dim() or not 1 < given.shape[dim] <= _MOST or given.dtype not in _COMPARED:
        return result
    values, indices = result
    indices.copy_(_bitonic(given.movedim(dim, -1), descending=descending).movedim(-1, dim))
    values.copy_(given.gather(dim, indices))
    return result


def _bitonic(given: torch.Tensor, *, descending: bool) -> torch.Tensor:
    """The indices that Triton's network of comparisons ends with; what fills it up goes to the end."""
    count = given.shape[-1]
    steps = (count - 1).bit_length()
    width = 1 << steps
    values = torch.nn.functional.pad(
        given.double() if given.is_floating_point() else given, (0, width - count)
    )
    indices = torch.arange(width, device=given.device).expand(values.shape)
    for stage in range(1, steps + 1):
        turned = (torch.arange(width, device=given.device) >> stage & 1).bool() & (stage < steps)
        for reach in (1 << step for step in reversed(range(stage))):
            values, indices = _exchanged(values, indices, reach, turned, count, descending=descending)
    return indices[..., :count].contiguous()


def _exchanged(
    values: torch.Tensor,
    indices: torch.Tensor,
    reach: int,
    turned: torch.Tensor,
    count: int,
    *,
    descending: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each pair of numbers that are `reach` apart, in order; where `turned`, in the opposite one."""
    shape = values.shape
    pairs = (*shape[:-1], shape[-1] // (2 * reach), 2, reach)
    (x, y), (i, j) = (part.reshape(pairs).unbind(-2) for part in (values, indices))
    swap = (x < y) | (y != y) if descending else (x > y) | (x != x)
    is_left, is_right = i < count, j < count
    swap = (is_right & ~is_left) | ((is_right == is_left) & swap)
    swap = swap ^ turned.reshape(pairs[-3:])[:, 0]
    values = torch.stack([torch.where(swap, y, x), torch.where(swap, x, y)], -2).reshape(shape)
    return values, torch.stack([torch.where(swap, j, i), torch.where(swap, i, j)], -2).reshape(shape)
