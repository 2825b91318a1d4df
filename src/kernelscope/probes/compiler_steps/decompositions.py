"""What the compiler puts in place of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_PLAIN = {"bernoulli_.float": "bernoulli.p", "normal_.default": "normal_functional.default"}


def decomposition_of(operator: Any) -> Callable[..., Any] | None:
    """From Inductor's table, or from those that torch itself uses whenever it traces."""
    from torch._inductor.decomposition import select_decomp_table

    found = select_decomp_table().get(operator)
    keys = torch._C.DispatchKey
    for key in (keys.Autograd, keys.CompositeImplicitAutograd):
        found = found or getattr(operator, "py_kernels", {}).get(key)
    return found


def functional_of(operator: Any) -> Any:
    """`aten.add.Tensor` of `aten.add_.Tensor`: what functionalization puts in its place; None: unknown."""
    schema = getattr(operator, "_schema", None)
    if schema is None or not schema.is_mutable:
        return operator
    packet, _, overload = str(operator).removeprefix("aten.").partition(".")
    name = _PLAIN.get(f"{packet}.{overload}", f"{packet.removesuffix('_')}.{overload}")
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    return None if found is None or found._schema.is_mutable else found


def functional_arguments(operator: Any, plain: Any, args: Any, kwargs: Any) -> Any:
    """Of `functional_of(operator)`, where fewer arguments may have defaults: `bernoulli_`."""
    if plain is operator:
        return args
    missing = [a for a in operator._schema.arguments[len(args) :] if not a.kwarg_only]
    if any(a.name in kwargs for a in missing):
        return args
    return (*args, *(a.default_value for a in missing))
