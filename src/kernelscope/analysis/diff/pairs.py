"""What differs between two calls that are the same call of two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kernelscope.events import Arg
from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import same_hash

Moment = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class ArgumentDifference:
    """One argument that two calls do not agree on."""

    position: int
    argument: str
    moment: Moment
    what: str  # "values", "shape", "dtype", "number"
    a: Any  # hash, shape, dtype or number of each
    b: Any
    other: int | None = None  # its position in the second run, where that has another kernel

    @property
    def position_b(self) -> int:
        return self.position if self.other is None else self.other


@dataclass(frozen=True, slots=True)
class PairDifference:
    inputs: tuple[ArgumentDifference, ...]
    outputs: tuple[ArgumentDifference, ...]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


def compare(a: KernelCall, b: KernelCall) -> PairDifference:
    """NaN equals NaN; uninitialised contents have no hash, so they never count."""
    if a.arg_names != b.arg_names:
        return PairDifference((), ())
    inputs = [*_forms(a, b), *_numbers(a, b), *_hashes(a, b, a.pre_hashes, b.pre_hashes, "before")]
    written = a.modified_args | b.modified_args
    outputs = [d for d in _hashes(a, b, a.post_hashes, b.post_hashes, "after") if d.position in written]
    return PairDifference(tuple(inputs), tuple(outputs))


def _forms(a: KernelCall, b: KernelCall) -> list[ArgumentDifference]:
    found = []
    for i, (one, other) in enumerate(zip(a.arguments, b.arguments, strict=True)):
        if one.tensor is None or other.tensor is None or one.returned:
            continue
        for what in ("shape", "dtype"):
            x, y = getattr(one.tensor, what), getattr(other.tensor, what)
            if x != y:
                found.append(ArgumentDifference(i, one.name, "before", what, x, y))
    return found


def _numbers(a: KernelCall, b: KernelCall) -> list[ArgumentDifference]:
    numbers_a, numbers_b = scalars(a), scalars(b)
    return [
        ArgumentDifference(i, a.arg_names[i], "before", "number", numbers_a[i], numbers_b[i])
        for i in sorted(numbers_a.keys() & numbers_b.keys())
        if not same_hash(numbers_a[i], numbers_b[i])
    ]


def scalars(call: KernelCall) -> dict[int, Any]:
    given = iter(call.recorded.scalars)
    return {i: _scalar(arg, given) for i, arg in enumerate(call.arguments) if arg.tensor is None}


def _scalar(arg: Arg, given: Any) -> Any:
    return next(given, None) if arg.varies else arg.value


def _hashes(
    a: KernelCall, b: KernelCall, hashes_a: dict[int, Any], hashes_b: dict[int, Any], moment: Moment
) -> list[ArgumentDifference]:
    return [
        ArgumentDifference(i, a.arg_names[i], moment, "values", hashes_a[i], hashes_b[i])
        for i in sorted(hashes_a.keys() & hashes_b.keys())
        if is_known(hashes_a[i]) and is_known(hashes_b[i]) and not same_hash(hashes_a[i], hashes_b[i])
    ]


def is_known(value: Any) -> bool:
    """A hash that was lost in a crash, or could not be computed, is unknown."""
    name = getattr(value, "name", type(value).__name__)
    return value is not None and name != "HashFailure"
