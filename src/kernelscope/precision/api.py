"""precision_map(): the error and range of each kernel of a function, and which formats would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernelscope.config import Config, strict_from_environment
from kernelscope.determinism.call_forms import arguments_of
from kernelscope.determinism.noted_calls import is_compiled
from kernelscope.probes.bus import BUS
from kernelscope.probes.probe_list import PROBES
from kernelscope.recording import Recording
from kernelscope.shadowing.api import listening
from kernelscope.shadowing.result import ShadowResult
from kernelscope.shadowing.session import Session

from .formats import FORMATS
from .kernel_row import KernelPrecision
from .measured_launches import Key, Measured, MeasuredLaunches
from .measured_operators import MeasuredOperators
from .program_runs import Outputs, ProgramRuns, distance, is_without_numbers
from .ranges import RangeObserver, SeenKernel
from .result import PrecisionMap
from .what_if import IN_FLOAT32, WhatIf, try_format
from .wider_program import in_float32, is_narrow

TRIED = ("bfloat16", "float8_e4m3fn")
TOLERANCE = 0.01


def precision_map(
    fn: Callable[..., Any],
    *given: Any,
    output: str | Sequence[str] = (),
    tolerance: float = TOLERANCE,
    formats: Sequence[str] = TRIED,
    ops: str = "graph",
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    **named: Any,
) -> PrecisionMap:
    """Measure each kernel against float64, and try which of them could have a narrower format.

    The arguments are given one by one, `precision_map(fn, x, y, k=1)`, or as a tuple and a dictionary,
    `precision_map(fn, (x, y), {"k": 1})`. They, and the modules and tensors that `fn` refers to, are put back
    before each run and at the end.

    output     globs of the outputs that must stay within the tolerance: "result 0", "gradient of argument 0",
               "gradient of layers.0.weight". Default: all
    tolerance  relative error of each of these outputs (root mean square); of integers, the share that differs
    formats    to try: bfloat16, float16, float8_e4m3fn, float8_e5m2, mxfp8, mxfp4
    ops        "graph" compiles the function and measures its kernels; "all" runs it as it is and measures
               eager operators too

    Example:
        result = kernelscope.precision_map(model, x, tolerance=1e-3)
        print(result)
    """
    globs = _checked(fn, output, tolerance, formats, ops)
    words, options = arguments_of(fn, given, args, kwargs, named)
    found = PrecisionMap(function=str(getattr(fn, "__name__", type(fn).__name__)), tolerance=tolerance)
    target = fn if ops == "all" or is_compiled(fn) else torch.compile(fn)
    runs = ProgramRuns(fn, target, words, options, globs)
    try:
        _Mapping(found, runs, ops).measure(formats)
        if any(is_narrow(kernel.dtypes) for kernel in found.kernels):
            found.what_ifs += _should_be_wider(found, fn, words, options, globs, ops)
    finally:
        runs.put_back()
    found.notes += [note for note in runs.notes if note not in found.notes]
    return found


def _checked(
    fn: Any, output: str | Sequence[str], tolerance: float, formats: Sequence[str], ops: str
) -> list[str]:
    if not callable(fn):
        raise TypeError(f"precision_map(fn, …): fn must be callable, not {fn!r:.60}")
    if ops not in ("graph", "all"):
        raise ValueError(f"precision_map(ops={ops!r}): give 'graph' or 'all'")
    if isinstance(formats, str) or not all(name in FORMATS for name in formats):
        raise ValueError(f"precision_map(formats={formats!r}): give a list with some of {', '.join(FORMATS)}")
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not is_number or not math.isfinite(tolerance) or tolerance < 0:
        raise ValueError(
            f"precision_map(tolerance={tolerance!r}): give a relative error of at least 0, such as 0.01"
        )
    globs = [output] if isinstance(output, str) else list(output)
    if not all(isinstance(glob, str) and glob for glob in globs):
        raise ValueError(f"precision_map(output={output!r}): give globs of outputs, such as 'result *'")
    return globs


class _Mapping:
    """The runs of one program."""

    def __init__(self, found: PrecisionMap, runs: ProgramRuns, ops: str) -> None:
        self._found, self._runs, self._which = found, runs, ops
        self._seen: dict[Key, SeenKernel] = {}

    def measure(self, formats: Sequence[str]) -> None:
        measured = self._errors()
        reference = self._ranges()
        found = self._found
        found.kernels = [
            _kernel(index, seen, measured.get(key)) for index, (key, seen) in enumerate(self._seen.items())
        ]
        found.outputs = list(reference)
        if not reference:
            known = ", ".join(self._runs.known) or "none: it returns no tensor"
            found.refused = f"no output of the function was chosen; it has {known}"
            return
        found.noise = self._noise(reference)
        empty = [name for name, value in reference.items() if is_without_numbers(value)]
        if empty:
            what = f"{', '.join(empty)} of the unrounded program: NaN or infinite in every element"
            found.notes.append(f"No promise concerns {what}.")
        if len(empty) == len(reference):
            found.refused = f"{what}, so no error of rounding can be measured"
            return
        found.what_ifs += [self.tried(name, reference) for name in formats]

    def tried(self, name: str, reference: Outputs, program: str = "as it is") -> WhatIf:
        tolerance = self._found.tolerance
        if self._found.noise > tolerance:
            why = f"two runs of the unchanged program differ by {self._found.noise:.2g}"
            return WhatIf(name, tolerance, program, reason=why, is_unfinished=True)
        labels = {key: f"#{i} {seen.site.kernel.name}" for i, (key, seen) in enumerate(self._seen.items())}
        kernels = list(self._seen.values())
        return try_format(name, kernels, labels, self._runs, reference, tolerance, self._which, program)

    def prepared(self) -> Outputs:
        """Only what the what-ifs need."""
        reference = self._ranges()
        self._found.noise = self._noise(reference)
        return reference

    def _errors(self) -> dict[Key, Measured]:
        result = ShadowResult()
        launches = MeasuredLaunches(result)
        operators = MeasuredOperators()
        with listening(Session(result, launches=launches)), _operators(operators, self._which == "all"):
            self._runs.once()
        self._found.failures += [f"{each.where}: {each.error}" for each in result.failures]
        self._found.notes += [*result.notes, *result.unshadowed]
        return launches.found | operators.found

    def _ranges(self) -> Outputs:
        observer = RangeObserver()
        with _observed(observer, self._which):
            reference = self._runs.once()
        self._seen = {key: kernel for key, kernel in observer.found.items() if kernel.dtypes}
        if observer.found and not self._seen:
            self._found.refused = "no kernel leaves floating-point values"
        unmeasured = [kernel.site.kernel.name for kernel in observer.found.values() if kernel.is_complex]
        if unmeasured:
            names = ", ".join(dict.fromkeys(unmeasured))
            note = f"Complex results are not measured or rounded: {names}"
            self._found.notes += [note] if note not in self._found.notes else []
            if not self._seen:
                self._found.refused = "no kernel leaves floating-point values that are not complex"
        return reference

    def _noise(self, reference: Outputs) -> float:
        return distance(self._runs.once(), reference)[0]


def _kernel(index: int, seen: SeenKernel, measured: Measured | None) -> KernelPrecision:
    site = seen.site
    is_measured = measured is not None and measured.is_measured
    error = measured.error if measured is not None and is_measured else None
    reason = measured.reason if measured is not None else "its part of the graph is not known"
    explained = measured.explained if measured is not None and measured.explained else None
    if not is_measured and not reason:
        reason = f"float64 has no more digits than {', '.join(seen.dtypes)}"
    return KernelPrecision(
        index, site.kernel.name, site.kernel.kind, seen.phase, seen.dtypes, seen.launches, error, explained,
        _verdict(measured) if is_measured and measured is not None else "not-measured",
        "" if is_measured else reason, seen.range, site.origin, f"{site.file}:{site.line}",
    )  # fmt: skip


def _verdict(measured: Measured) -> str:
    error = measured.error
    if error.not_finite or error.too_large:
        return "overflows"
    if measured.is_wrong:
        return "wrong"
    return "amplifies" if measured.amplifies else "fine"


@contextmanager
def _operators(listener: MeasuredOperators, is_wanted: bool) -> Iterator[None]:
    if not is_wanted:
        yield
        return
    PROBES.acquire(operators=True, strict=True)
    try:
        BUS.attach(listener)
        try:
            yield
        finally:
            BUS.detach(listener)
    finally:
        PROBES.release(operators=True)


@contextmanager
def _observed(observer: RangeObserver, ops: str) -> Iterator[None]:
    config = Config(ops=ops, strict=strict_from_environment())  # type: ignore[arg-type]  # checked before
    recording = Recording(config, keeps_calls=False)
    recording.observers.append(observer)
    recording.open()
    try:
        yield
    finally:
        recording.close()


def _should_be_wider(
    found: PrecisionMap, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    globs: list[str], ops: str,
) -> list[WhatIf]:  # fmt: skip
    """The same program in float32, with the outputs of as many kernels as possible rounded to 16 bits."""
    name = "bfloat16" if any("bfloat16" in kernel.dtypes for kernel in found.kernels) else "float16"
    device = next((t.device.type for t in args if isinstance(t, torch.Tensor)), "cpu")
    try:
        with torch.autocast(device, enabled=False):
            plain, wide_args, wide_kwargs = in_float32(fn, args, kwargs)
            target = plain if ops == "all" else torch.compile(plain)
            runs = ProgramRuns(plain, target, wide_args, wide_kwargs, globs)
            wide = PrecisionMap(tolerance=found.tolerance)
            mapping = _Mapping(wide, runs, ops)
            reference = mapping.prepared()
            tried = mapping.tried(name, reference, IN_FLOAT32)
            runs.put_back()
    except Exception as error:  # the program's own: a function may insist on its dtype
        why = f"it does not run in float32: {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        return [WhatIf(name, found.tolerance, IN_FLOAT32, reason=why)]
    found.notes += [note for note in runs.notes if note not in found.notes]
    return [tried]
