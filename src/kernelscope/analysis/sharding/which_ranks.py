"""Which ranks differ: those whose numbers, or whose part of a value, are not those of one process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelscope.model.call import KernelCall

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class OtherNumber:
    """A number that a call was given: a learning rate, for example."""

    name: str
    expected: float
    given: dict[int, float]  # by rank, where it is another

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.given)

    def __str__(self) -> str:
        by_value: dict[float, list[int]] = {}
        for rank, number in self.given.items():
            by_value.setdefault(number, []).append(rank)
        said = [f"{number!r} on {named(ranks)}" for number, ranks in by_value.items()]
        return f"the number {self.name} is {', '.join(said)}, and {self.expected!r} in the run of one process"


def named(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (" …" if len(ranks) > _SHOWN else "")
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}"


def other_numbers(
    reference: KernelCall, calls: Sequence[KernelCall], ranks: Sequence[int]
) -> Iterator[OtherNumber]:
    """The numbers of a call that are others on some ranks."""
    for i, (arg, expected) in enumerate(zip(reference.arguments, reference.args, strict=True)):
        if arg.tensor is not None or arg.returned or not _is_number(expected):
            continue
        given: dict[int, float] = {}
        for rank, call in zip(ranks, calls, strict=True):
            found = call.args[i] if i < len(call.args) and call.arg_names[i] == arg.name else expected
            if _is_number(found) and not _is_same(found, expected):
                given[rank] = found
        if given:
            yield OtherNumber(arg.name, expected, given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _is_same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
