"""A precision map as text: a table of kernels, and a sentence for each promise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kernelscope.text.amounts import counted

from .formats import FORMATS
from .kernel_row import KernelPrecision
from .what_if import IN_FLOAT32, WhatIf

_NAME = 44  # columns of a kernel's name
_SAYS = {
    "amplifies": "rounding is amplified, as by cancellation",
    "overflows": "values do not fit the dtype",
    "wrong": "more error than rounding explains: kernelscope shadow",
}


def kernel_lines(kernels: Sequence[KernelPrecision], function: str, *, verbose: bool) -> Iterator[str]:
    if not kernels:
        return
    yield f"precision of {function}: {counted(len(kernels), 'kernel')}, error against float64"
    yield from _table([_HEAD, *map(_row, kernels)])
    yield "ulp: median; fp16 to mxfp4: share of the values that overflow or become zero in that format."
    for kernel in kernels:
        yield from _remarks(kernel, verbose=verbose)


def promise_lines(
    what_ifs: Sequence[WhatIf], outputs: Sequence[str], tolerance: float, *, verbose: bool
) -> Iterator[str]:
    if outputs:
        yield f"outputs within {tolerance:g}: {_listed(outputs, None if verbose else 6)}"
    for each in what_ifs:
        yield from _promise(each, verbose=verbose)


_HEAD = [
    "kernel", "dtype", "ulp", "max ulp", "relative", "smallest", "largest",
    "fp16", "bf16", "e4m3", "e5m2", "mxfp8", "mxfp4",
]  # fmt: skip


def _row(kernel: KernelPrecision) -> list[str]:
    held, error = kernel.range, kernel.error
    lost = [held.shares(name) for name in FORMATS]
    return [
        _shortened(kernel.label),
        ",".join(kernel.dtypes) or "-",
        f"{error.median_ulp:.2g}" if error is not None else "?",
        f"{error.max_ulp:.2g}" if error is not None else "?",
        f"{error.relative:.1e}" if error is not None else "?",
        f"{held.smallest:.1e}" if math.isfinite(held.smallest) else "-",
        f"{held.largest:.1e}" if held.elements else "-",
        *(_share(each["overflow"] + each["flushed"]) if held.elements else "-" for each in lost),
    ]


def _remarks(kernel: KernelPrecision, *, verbose: bool) -> Iterator[str]:
    if kernel.verdict in _SAYS:
        amount = f": relative error {kernel.error.relative:.1e}" if kernel.error is not None else ""
        if kernel.verdict == "amplifies" and kernel.explained is not None:
            amount += f"; one rounding of each step leads to {kernel.explained:.1e}"
        if kernel.verdict == "overflows":
            amount = f": {counted(kernel.range.infinite + kernel.range.nan, 'value')} infinite or NaN"
        at = f" at {kernel.origin[0]}" if kernel.origin else ""
        yield f"  {kernel.label}{at}: {_SAYS[kernel.verdict]}{amount}"
    elif kernel.verdict == "not-measured":
        yield f"  {kernel.label}: not measured: {kernel.reason}"
    if verbose and kernel.range.elements:
        for name in FORMATS:
            shares = kernel.range.shares(name)
            if any(shares.values()):
                amounts = ", ".join(f"{what} {_share(share)}" for what, share in shares.items())
                yield f"  {kernel.label} in {name}: {amounts}"


def _promise(each: WhatIf, *, verbose: bool) -> Iterator[str]:
    total = len(each.candidates)
    where = f" ({each.program})" if each.program != "as it is" else ""
    if each.reason:
        yield f"{each.format}{where}: not tried: {each.reason}"
        return
    if not each.is_kept:
        yield f"{each.format}{where}: no promise: the run to verify it had error {_error(each.error)}"
        return
    error = f"error {_error(each.error)}, {_error(each.error_of_all)} with all of them"
    if not each.chosen:
        yield f"{each.format}{where}: none of {counted(total, 'kernel')} can be {each.format} ({error})"
        yield from _refusals(each, verbose=verbose)
        return
    some = f"{len(each.chosen)} of {counted(total, 'kernel')} can be {each.format}"
    yield f"{each.format}{where}: {some}; verified in a run with these rounded ({error})"
    yield f"  can be {each.format}: {_listed(each.chosen, None if verbose else 6)}"
    yield from _refusals(each, verbose=verbose)
    if verbose:
        for one in sorted(each.candidates, key=lambda one: one.effect):
            yield f"    {one.label} alone: {_error(one.effect)}"


def _refusals(each: WhatIf, *, verbose: bool) -> Iterator[str]:
    """Those first that change the outputs most."""
    refused = sorted((one for one in each.candidates if not one.is_chosen), key=lambda one: -one.effect)
    named = [f"{one.label} (alone {_error(one.effect)})" for one in refused]
    if named:
        what = "should be float32" if each.program == IN_FLOAT32 else "should stay as they are"
        yield f"  {what}: {_listed(named, None if verbose else 8)}"


def _error(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "not finite"


def _share(value: float) -> str:
    if value == 0:
        return "0"
    return f"{100 * value:.0f}%" if value >= 0.01 else "<1%"


def _listed(names: Sequence[str], most: int | None) -> str:
    shown = list(names[:most])
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME // 2]}…{name[1 - _NAME // 2 :]}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        texts = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(cells)]
        yield "  ".join(texts).rstrip()
