"""The arguments of a call in a wrapper: as the wrapper wrote them, described, and where to find them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernelscope.events import Arg, Role
from kernelscope.generated_code.calls import ArgText, Callsite
from kernelscope.probes.describe import describe, plain

Address = tuple[str, str] | None  # a variable, and the expression around it that has the tensor's address


def variables_of(callsite: Callsite) -> set[str]:
    """Every variable that a call in the wrapper is given."""
    texts = [*callsite.args, *callsite.kwargs.values()]
    return {text.name for text in texts} | {item.name for text in texts for item in text.items or ()}


def is_constant(text: ArgText, sizes: frozenset[str] = frozenset()) -> bool:
    """Whether an argument that is not a tensor is the same each time, as the variables in `sizes` are."""
    if text.literal or text.node is None:
        return text.literal
    parts = list(ast.walk(text.node))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return bool(names) and names <= sizes and not any(isinstance(part, ast.Call) for part in parts)


def positional_arg(
    i: int, value: Any, text: ArgText, names: Sequence[tuple[str, Role]], sizes: frozenset[str] = frozenset()
) -> Arg:
    name, role = (
        names[i] if i < len(names) else (f"arg{i}", "inout" if isinstance(value, torch.Tensor) else "scalar")
    )
    if isinstance(value, torch.Tensor):
        return Arg(name, role if role != "scalar" else "in", describe(value), text.name)
    if is_constant(text, sizes):
        return Arg(name, "scalar", None, text.name, plain(value))
    return Arg(name, "scalar", None, text.name, varies=True)


def shape_key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride() if value.layout is torch.strided else None
    return value if isinstance(value, int) else None


def flat_texts(callsite: Callsite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[ArgText]:
    """How the wrapper wrote each flat argument."""
    unknown = ArgText("", False)
    texts = [*callsite.args, *[unknown] * (len(args) - len(callsite.args))]
    given = [
        *zip(texts, args, strict=False),
        *((callsite.kwargs.get(k, unknown), v) for k, v in kwargs.items()),
    ]
    for text, value in given:
        if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
            yield from text.items or [text] * len(value)
        else:
            yield text


def returned_addresses(target: str, result: Any, given: list[Any]) -> list[Address]:
    """Where the wrapper finds what a launch returned, in the order of the site's arguments."""
    if isinstance(result, torch.Tensor):
        results, positions = [result], ["{}"]
    elif isinstance(result, tuple | list):
        results, positions = list(result), [f"{{}}[{i}]" for i in range(len(result))]
    else:
        return []
    known = {id(value) for value in given}
    return [
        (target, position) if target.isidentifier() else None
        for value, position in zip(results, positions, strict=True)
        if isinstance(value, torch.Tensor) and id(value) not in known
    ]
