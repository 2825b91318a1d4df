"""Sizes that are numbers, or expressions of the sizes of a dynamic graph's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Size = Any  # int, or a sympy expression


def size_of(value: Any) -> Size:
    """The plain form of a size as FX keeps it."""
    if isinstance(value, int) and not hasattr(value, "node"):
        return int(value)
    node = getattr(value, "node", None)
    if node is None:
        return value
    return _plain(node.expr)


def _plain(expr: Any) -> Size:
    return int(expr) if getattr(expr, "is_Integer", False) else expr


def sizes_of(values: Iterable[Any]) -> tuple[Size, ...]:
    return tuple(size_of(v) for v in values)


def is_zero(size: Size) -> bool:
    return isinstance(size, int) and size == 0


def is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


def equal(a: Size, b: Size) -> bool:
    """Whether they are the same for every input."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    import sympy

    return bool(sympy.expand(a - b) == 0)


def times(*factors: Size) -> Size:
    result: Size = 1
    for each in factors:
        result = result * each
    if isinstance(result, int):
        return result
    import sympy

    return _plain(sympy.expand(result))


def product(sizes: Iterable[Size]) -> Size:
    return times(*sizes)


def divided(a: Size, b: Size) -> Size | None:
    """a / b if that is whole for every input."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    import sympy

    quotient = sympy.cancel(a / b)
    return _plain(quotient) if quotient.as_numer_denom()[1] == 1 else None


def symbols_in(size: Size) -> set[str]:
    return set() if isinstance(size, int) else {str(s) for s in size.free_symbols}


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    strides: list[Size] = []
    step: Size = 1
    for extent in reversed(shape):
        strides.append(step)
        step = times(step, extent if not isinstance(extent, int) else max(extent, 1))
    return tuple(reversed(strides))


def refine(shapes: Sequence[Sequence[Size]], hint: Callable[[Size], int]) -> tuple[Size, ...] | None:
    """The coarsest shape that every given shape is a merging of, sizes of 1 left out."""
    bounds: list[Size] = []
    for shape in shapes:
        step: Size = 1
        for extent in reversed([s for s in shape if not is_one(s)]):
            step = times(step, extent)
            if not any(equal(step, known) for known in bounds):
                bounds.append(step)
    bounds.sort(key=hint)
    dims: list[Size] = []
    last: Size = 1
    for bound in bounds:
        extent = divided(bound, last)
        if extent is None:
            return None
        dims.append(extent)
        last = bound
    total = [product(shape) for shape in shapes]
    if any(not equal(t, last) for t in total):
        return None
    return tuple(reversed(dims))


def spread(shape: Sequence[Size], strides: Sequence[Size], dims: Sequence[Size]) -> tuple[Size, ...] | None:
    """Strides over refined dimensions, from those over a shape; None when the dimensions do not fit."""
    found: list[Size] = []
    at = len(dims)
    for extent, stride in reversed(list(zip(shape, strides, strict=True))):
        if is_one(extent):
            continue
        covered: Size = 1
        while not equal(covered, extent):
            at -= 1
            if at < 0:
                return None
            found.append(times(stride, covered))
            covered = times(covered, dims[at])
            if divided(extent, covered) is None:
                return None
    return tuple(reversed(found)) if at == 0 else None


def supported(size: Size) -> bool:
    """Whether it is a number or a polynomial, which is all that kernels compute."""
    return isinstance(size, int) or bool(size.is_polynomial(*size.free_symbols))


def literal(size: Size) -> str:
    """A size as Choreo text."""
    if isinstance(size, int):
        return str(size)
    import sympy

    whole = sympy.expand(size)
    text = str(whole)
    return _powers(whole) if "**" in text else text


def _powers(expr: Any) -> str:
    """Choreo has no powers: write them out."""
    terms = []
    for term, factor in expr.as_coefficients_dict().items():
        parts = [str(factor)] if factor != 1 or term == 1 else []
        for base, power in term.as_powers_dict().items():
            if base != 1:
                parts += [str(base)] * int(power)
        terms.append(" * ".join(parts) or "1")
    return " + ".join(terms)
