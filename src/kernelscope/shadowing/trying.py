"""Running a function once, forward and backward, without a trace in its arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map


def try_once(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], backend: str = "inductor"
) -> Any:
    """Compile it, call it, and differentiate the sum of what it returns."""
    target = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
    given: tuple[Any, Any] = tree_map(_apart, (tuple(args), kwargs))
    result = torch.compile(target, backend=backend)(*given[0], **given[1])
    made = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    wanted = [t for t in made if t.requires_grad]
    leaves = [t for t in tree_flatten(given)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if isinstance(target, torch.nn.Module):
        leaves += [p for p in target.parameters() if p.requires_grad]
    if wanted:
        gradients = [torch.ones_like(t) for t in wanted]
        if leaves:
            torch.autograd.grad(wanted, leaves, gradients, allow_unused=True)
        else:
            torch.autograd.backward(wanted, gradients)
    return result


def _apart(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_leaf:
        return value.clone()
    return value.detach().clone().requires_grad_(value.requires_grad)
