"""The same program in float32: parameters, buffers and arguments of 16 bits are widened, autocast is off."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

_NARROW = (torch.bfloat16, torch.float16)


def in_float32(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A copy of a module, or the function itself where it is not one; not compiled."""
    plain = getattr(fn, "_orig_mod", fn)
    plain = getattr(plain, "_torchdynamo_orig_callable", plain)
    if isinstance(plain, torch.nn.Module):
        plain = copy.deepcopy(plain)
        plain._compiled_call_impl = None
        _widen_module(plain)
    args, kwargs = tree_map(_widened, (args, kwargs))
    return plain, args, kwargs


def _widen_module(module: torch.nn.Module) -> None:
    for each in [*module.parameters(), *module.buffers()]:
        if each.dtype in _NARROW:
            each.data = each.data.float()


def _widened(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in _NARROW:
        return value
    return value.detach().float().requires_grad_(value.requires_grad)


def is_narrow(dtypes: tuple[str, ...]) -> bool:
    return any(f"torch.{name}" in map(str, _NARROW) for name in dtypes)
