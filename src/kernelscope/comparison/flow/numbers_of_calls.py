"""Numbers that a call was given beside its tensors: an epsilon, a factor, a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelscope.probes.launch import Launch

Number = float | str
_PLAIN = ("float", "number", "Tensor", "str")
_CHOICES = ("approximate", "rounding_mode", "reduce")


def numbers_of(schema: Any, given: Mapping[str, Any]) -> tuple[tuple[str, Number], ...]:
    """By name, with those that the operator takes where none is given."""
    found: list[tuple[str, Number]] = []
    for arg in getattr(schema, "arguments", ()):
        kind = str(arg.type).removeprefix("Optional[").removesuffix("]")
        value = given.get(arg.name, arg.default_value)
        if kind not in _PLAIN or isinstance(value, bool):
            continue
        if isinstance(value, int | float) or (isinstance(value, str) and arg.name in _CHOICES):
            found.append((arg.name, value if isinstance(value, str) else float(value)))
    return tuple(found)


def numbers_of_launch(launch: Launch) -> tuple[tuple[str, Number], ...]:
    schema = getattr(launch.func, "_schema", None)
    return numbers_of(schema, by_name(schema, launch.args, launch.kwargs)) if schema is not None else ()


def by_name(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {arg.name: value for arg, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
