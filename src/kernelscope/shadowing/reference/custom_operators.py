"""Operators that are not torch's own: they may write to arguments without declaring it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernelscope.probes.thread_mode import ThreadMode

_TORCHS = frozenset(
    (
        "aten",
        "prims",
        "prim",
        "quantized",
        "onednn",
        "mkldnn",
        "mkldnn_prepacked",
        "mkl",
        "inductor",
        "rngprims",
    )
)


def is_custom(operator: Any) -> bool:
    """Of the program, or of a library."""
    return isinstance(operator, torch._ops.OpOverload) and operator.namespace not in _TORCHS


def copied_as_it_lies(value: Any) -> Any:
    """A tensor in memory of its own, with the same strides, also where elements overlap."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.clone()
    if value.layout != torch.strided or copy.stride() == value.stride() or not value.numel():
        return copy
    reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    return value.as_strided((reach,), (1,)).clone().as_strided(value.shape, value.stride())


class OnlyDeclaredWrites(ThreadMode):
    """Operators that are not torch's own write to nothing but what they declare to write to."""

    supports_higher_order_operators = True

    def __init__(self, write_back: Callable[[Any, tuple[Any, Any], tuple[Any, Any]], None]) -> None:
        """`write_back` copies what such an operator wrote to copies and declares."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._write_back = write_back

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, kwargs or {}
        if not is_custom(func) or _may_alias(func) or not all(map(_can_be_copied, tree_leaves(given))):
            return func(*args, **given[1])
        copies = tree_map(copied_as_it_lies, given)
        result = func(*copies[0], **copies[1])
        self._write_back(func, given, copies)
        return result


def _may_alias(operator: Any) -> bool:
    """Whether a result may be a view of an argument."""
    return any(each.alias_info is not None for each in operator._schema.returns)


def _can_be_copied(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter)
