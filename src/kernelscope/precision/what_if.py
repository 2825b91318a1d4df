"""What if some kernels had outputs of a narrower format? Tried by running the program with them rounded."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelscope.events import Site
from kernelscope.values.replacement import Arguments, Replaced, Written, replaced_outputs

from .formats import FORMATS, Format
from .measured_launches import Key, key_of
from .program_runs import Outputs, ProgramRuns, distance
from .ranges import SeenKernel
from .search import largest_choice

AS_IT_IS, IN_FLOAT32 = "as it is", "in float32"


@dataclass(slots=True)
class Candidate:
    """A kernel whose outputs were rounded."""

    label: str  # "#3 extern_kernels.mm"
    origin: str  # the user's line
    effect: float  # relative error of the outputs if this kernel alone is rounded
    is_chosen: bool

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"effect": self.effect if math.isfinite(self.effect) else None}


@dataclass(slots=True)
class WhatIf:
    """A promise about one format; it holds only where `is_kept`, because a run has shown it."""

    format: str
    tolerance: float
    program: str = AS_IT_IS
    candidates: list[Candidate] = field(default_factory=list)
    error: float = 0.0  # of the outputs, in the run with all chosen kernels rounded
    output: str = ""  # the one with that error
    error_of_all: float = 0.0  # with all candidates rounded
    is_kept: bool = False
    runs: int = 0
    seconds: float = 0.0  # that these took
    reason: str = ""  # why nothing was tried
    is_unfinished: bool = False  # it should have been possible

    @property
    def chosen(self) -> list[str]:
        """The kernels that may have this format, all together."""
        return [each.label for each in self.candidates if each.is_chosen]

    @property
    def refused(self) -> list[str]:
        """The kernels that should stay wider."""
        return [each.label for each in self.candidates if not each.is_chosen]

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "program": self.program,
            "tolerance": self.tolerance,
            "is_kept": self.is_kept,
            "error": self.error if math.isfinite(self.error) else None,
            "output": self.output,
            "error_of_all": self.error_of_all if math.isfinite(self.error_of_all) else None,
            "chosen": self.chosen,
            "refused": self.refused,
            "candidates": [each.to_dict() for each in self.candidates],
            "runs": self.runs,
            "seconds": self.seconds,
            "reason": self.reason,
        }


class _CannotRound(Exception):
    """The reason is raised where the block ends."""


class RoundedSites:
    """The sites whose outputs are rounded, another choice in each run."""

    def __init__(self) -> None:
        self.keys: frozenset[Key] = frozenset()
        self.launched: set[Key] = set()

    def wants_site(self, site: Site) -> bool:
        if (key := key_of(site)) not in self.keys:
            return False
        self.launched.add(key)
        return True

    def complaints(self) -> list[str]:
        return []


def try_format(
    name: str, kernels: Sequence[SeenKernel], labels: dict[Key, str], runs: ProgramRuns, reference: Outputs,
    tolerance: float, ops: str, program: str = AS_IT_IS,
) -> WhatIf:  # fmt: skip
    """The largest choice that greedy search finds, verified by a run with exactly these outputs rounded."""
    found, each = WhatIf(name, tolerance, program), FORMATS[name]
    wider = {key_of(k.site): k for k in kernels if k.bits > each.bits}
    if not wider:
        found.reason = f"no kernel leaves floating-point values wider than {name}"
        if program == IN_FLOAT32:
            found.reason += ", also where parameters and arguments are float32: the program casts them itself"
        return found
    before, began = runs.count, time.perf_counter()
    sites, worst = RoundedSites(), ""
    try:
        with replaced_outputs("the chosen kernels", _rounding(each), sites, ops) as replaced:

            def effect(keys: frozenset[Key]) -> float:
                nonlocal worst
                error, worst = _once_rounded(keys, sites, replaced, runs, reference)
                return error

            choice = largest_choice(list(wider), effect, tolerance)
    except (RuntimeError, _CannotRound) as error:
        found.reason, found.is_unfinished = str(error).partition("\n")[0][:300], True
        return found
    chosen = set(choice.chosen)
    found.candidates = [
        Candidate(labels[key], str(kernel.site.origin[0]) if kernel.site.origin else "",
                  choice.alone[key], key in chosen)
        for key, kernel in wider.items()
    ]  # fmt: skip
    found.error, found.output, found.is_kept = choice.error, worst, choice.is_kept
    found.error_of_all, found.runs = choice.together, runs.count - before
    found.seconds = time.perf_counter() - began
    return found


def _once_rounded(
    keys: frozenset[Key], sites: RoundedSites, replaced: Replaced, runs: ProgramRuns, reference: Outputs
) -> tuple[float, str]:
    sites.keys, before = keys, replaced.replaced
    sites.launched.clear()
    try:
        outputs = runs.once()
    except Exception as error:  # the program's own: it may refuse what rounding makes of its values
        note = f"With rounded outputs the function raises {type(error).__name__}: {error!s:.150}"
        runs.notes += [note] if note not in runs.notes else []
        return math.inf, ""
    if keys and replaced.replaced == before:
        raise _CannotRound("the outputs of the kernels could not be replaced")
    if sites.launched != keys:  # other code ran: a choice that was not tried is not promised
        return math.inf, ""
    return distance(outputs, reference)


def _rounding(each: Format) -> Any:
    def rounded(arguments: Arguments, written: Written) -> dict[str, torch.Tensor]:
        return {
            name: each.rounded(tensor)
            for name, tensor in written.items()
            if tensor.is_floating_point() and torch.finfo(tensor.dtype).bits > each.bits
        }

    return rounded
