"""What an invariance check found: the first kernel that makes a row depend on others, and every other one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kernelscope.text.amounts import counted

from .verdicts import KernelVerdict


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """A result of the program whose rows depend on the others."""

    name: str
    run: str
    differing: int
    elements: int
    max_abs: float
    max_ulp: int | None

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"max_abs": self.max_abs if self.max_abs < float("inf") else None}

    def __str__(self) -> str:
        amount = how_much(self.differing, self.elements, self.max_abs, self.max_ulp)
        return f"{self.name} differs {amount} ({self.run})"


@dataclass(slots=True)
class InvarianceResult:
    """True when the result for a row depends on the other rows."""

    rows: int = 0
    dim: Any = 0
    runs: list[str] = field(default_factory=list)  # the batches that were compared with the whole one
    kernels: list[KernelVerdict] = field(default_factory=list)
    results: list[ResultDifference] = field(default_factory=list)  # of the program, one for each
    unexplained: list[ResultDifference] = field(default_factory=list)  # by any kernel that was followed
    results_followed: int = 0
    results_not_followed: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of kernelscope itself
    notes: list[str] = field(default_factory=list)
    function: str = ""
    refused: str = ""  # why nothing was run

    @property
    def variant(self) -> list[KernelVerdict]:
        return [kernel for kernel in self.kernels if kernel.verdict == "variant"]

    @property
    def first(self) -> KernelVerdict | None:
        """The first kernel whose result for a row depends on the other rows."""
        return next(iter(self.variant), None)

    @property
    def not_followed(self) -> list[KernelVerdict]:
        return [kernel for kernel in self.kernels if kernel.verdict == "not-followed"]

    def __bool__(self) -> bool:
        return bool(self.variant or self.results or self.unexplained)

    @property
    def problem(self) -> str:
        """Why the result is inconclusive, where nothing was found."""
        if self.refused:
            return self.refused
        if self.failures:
            return f"kernelscope itself failed: {self.failures[0]}"
        if not self.runs:
            return "the function could not be run with other rows"
        if not self.kernels:
            return "no kernel was launched that can be followed"
        if self.results_not_followed:
            return f"{self.results_not_followed[0]} could not be followed"
        if not self.results_followed and len(self.not_followed) == len(self.kernels):
            return "no kernel could be followed, and the program returned nothing with rows"
        return ""

    @property
    def status(self) -> int:
        """An exit status: 0 invariant, 1 variant, 2 inconclusive."""
        return 1 if self else 2 if self.problem else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first.to_dict() if self.first is not None else None,
            "status": self.status,
            "problem": self.problem,
            "function": self.function,
            "rows": self.rows,
            "dim": self.dim,
            "runs": self.runs,
            "counts": {name: sum(k.verdict == name for k in self.kernels) for name in _VERDICTS},
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "results": [each.to_dict() for each in self.results],
            "unexplained": [each.to_dict() for each in self.unexplained],
            "results_followed": self.results_followed,
            "results_not_followed": self.results_not_followed,
            "failures": self.failures,
            "notes": self.notes,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return "\n".join(self._lines(verbose=False))

    def details(self) -> str:
        """The same with every kernel."""
        return "\n".join(self._lines(verbose=True))

    def __repr__(self) -> str:
        first = self.first
        what = (
            f"variant: {first.kernel_name}" if first else "variant" if self else self.problem or "invariant"
        )
        amount = f"{counted(len(self.kernels), 'kernel')}, {counted(len(self.runs), 'run')}"
        return f"<InvarianceResult: {what}, {amount}>"

    def _lines(self, *, verbose: bool) -> list[str]:
        lines = []
        first = self.first
        if first is not None:
            lines += _kernel_lines(first)
            more = [f"#{kernel.index} {kernel.kernel_name}" for kernel in self.variant[1:]]
            lines += [f"  also       {name}" for name in (more if verbose else more[:5])]
            lines += [f"  also       {len(more) - 5} more"] if len(more) > 5 and not verbose else []
        elif self:
            lines.append("variant: a result depends on other rows, but no kernel that was followed causes it")
        else:
            lines.append(
                f"inconclusive: {self.problem}" if self.problem else "invariant: no row depends on the others"
            )
        lines += [f"  {each}" for each in (self.results if verbose else self.results[:4])]
        lines += [f"  not explained by any kernel: {each}" for each in self.unexplained[:4]] if first else []
        if self.kernels:
            lines.append(self._summary())
        for kernel in self.kernels if verbose else self.not_followed[:8]:
            why = f": {kernel.reason}" if kernel.reason else ""
            lines.append(f"  {kernel.verdict.replace('-', ' ')}: #{kernel.index} {kernel.kernel_name}{why}")
        if not verbose and len(self.not_followed) > 8:
            lines.append(f"  not followed: {len(self.not_followed) - 8} more")
        return [*lines, *self.failures, *self.notes]

    def _summary(self) -> str:
        counts = [
            f"{sum(k.verdict == name for k in self.kernels)} {name.replace('-', ' ')}" for name in _VERDICTS
        ]
        launches = "1 launch" if len(self.kernels) == 1 else f"{len(self.kernels)} launches"
        runs = counted(len(self.runs), "run")
        return f"{launches} with {self.rows} rows, {runs} with other batches: {', '.join(counts)}."


_VERDICTS = ("invariant", "variant", "not-followed")


def how_much(differing: int, elements: int, max_abs: float | None, max_ulp: int | None) -> str:
    ulps = f", {max_ulp} ulp" if max_ulp is not None else ""
    amount = f"by up to {max_abs:.3g}{ulps}" if max_abs is not None else ""
    return f"{amount} in {differing} of {elements} elements"


def _kernel_lines(kernel: KernelVerdict) -> list[str]:
    other = f"; {kernel.other_kernel} ran in its place" if kernel.other_kernel else ""
    name = f"#{kernel.index} {kernel.kernel_name} ({kernel.kind})"
    lines = [
        f"variant: kernel {name} at {kernel.line} makes rows depend on other rows",
        f"  cause      {kernel.cause}: {kernel.explanation}{other}",
        f"  depends on {', '.join(_TESTS[test] for test in kernel.depends_on)}",
    ]
    if kernel.argument:
        amount = how_much(kernel.differing, kernel.elements, kernel.max_abs, kernel.max_ulp)
        lines.append(f"  how much   {kernel.argument} differs {amount} ({kernel.run})")
    if kernel.nodes:
        lines.append(f"  computes   {', '.join(kernel.nodes[:8])}{' …' if len(kernel.nodes) > 8 else ''}")
    if kernel.reaches:
        lines.append(f"  reaches    the rows of {kernel.reaches}")
    if kernel.joined:
        lines.append(f"  with       {', '.join(kernel.joined)}, whose results could not be compared")
    return lines


_TESTS = {
    "size": "the number of rows",
    "position": "the place of a row in the batch",
    "contents": "the contents of the other rows",
    "repeat": "chance: a second run with the same rows gave a different result",
}
