"""What a shadowed program showed: the kernels that are wrong, and those that could not be judged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernelscope.events import Frame

if TYPE_CHECKING:
    from kernelscope.probes.launch import Launch

Numbers = dict[str, "float | int | str"]


@dataclass(frozen=True, slots=True)
class Culprit:
    """One thing that is wrong."""

    verdict: str  # wrong-kernel | uninitialised-read | foreign-write | wrong-stage | wrong-result
    reason: str
    index: int  # of the launch, counted over the whole program; of a stage: -1
    kernel_name: str
    kind: str  # cpp | triton | extern | stage | wrapper
    argument: str  # the kernel's name for what is wrong
    buffer: str = ""  # the wrapper's name for it
    node: str = ""  # the FX node whose value it should be
    nodes: tuple[str, ...] = ()  # what the kernel computes it from, and how
    joined: tuple[str, ...] = ()  # other kernels that the same value went through
    phase: str = ""
    graph: str = ""
    where: tuple[int, ...] | None = None  # the worst element
    numbers: Numbers = field(default_factory=dict, hash=False)
    origin: tuple[Frame, ...] = ()
    wrapper: str = ""  # file:line of the generated code that launched it
    source: str = ""  # the kernel's
    times: int = 1  # how many launches of this place were wrong

    @property
    def line(self) -> str:
        return str(self.origin[0]) if self.origin else "an unknown line"

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "kernel_name": self.kernel_name,
            "kind": self.kind,
            "argument": self.argument,
            "buffer": self.buffer,
            "verdict": self.verdict,
            "reason": self.reason,
            "origin": [{"file": f.file, "line": f.line, "function": f.function} for f in self.origin],
            "node": self.node,
            "nodes": list(self.nodes),
            "joined": list(self.joined),
            "phase": self.phase,
            "graph": self.graph,
            "where": list(self.where) if self.where is not None else None,
            "numbers": {k: _plain(v) for k, v in self.numbers.items()},
            "wrapper": self.wrapper,
            "times": self.times,
        }


def culprit_of(launch: Launch, index: int, verdict: str, reason: str, **more: Any) -> Culprit:
    """A culprit, with all that the launch itself tells."""
    site = launch.site
    told: dict[str, Any] = {
        "kernel_name": site.kernel.name,
        "kind": site.kernel.kind,
        "phase": launch.phase,
        "origin": site.origin,
        "wrapper": f"{site.file}:{site.line}",
        "source": site.kernel.source,
    }
    return Culprit(verdict=verdict, reason=reason, index=index, **(told | more))


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A buffer that was not judged: neither right nor wrong."""

    kernel_name: str
    argument: str
    reason: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.kernel_name} {self.argument}: {self.reason}" + (
            f" ({self.times} times)" if self.times > 1 else ""
        )


@dataclass(slots=True)
class Counts:
    """How much was looked at."""

    launches: int = 0
    buffers: int = 0  # judged
    bitwise: int = 0  # of them equal to eager bit by bit
    given: int = 0  # random numbers that were taken as they are
    graphs: int = 0
    stages: int = 0  # pairs of stages that were compared
    narrow: set[str] = field(default_factory=set)  # operators without float64, judged in their own dtype


class ShadowResult:
    """Truthy when something is wrong; `culprit` is the first thing that is."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.unshadowed: list[str] = []  # graphs that ran and could not be followed
        self.notes: list[str] = []
        self.is_done = False
        self._wrong: dict[tuple[str, str, str, str], Culprit] = {}
        self._unchecked: dict[tuple[str, str, str], int] = {}

    # -- what was found --------------------------------------------------------------------------------

    @property
    def culprits(self) -> list[Culprit]:
        """Everything that is wrong, in the order in which it happened; a wrong stage comes first."""
        return sorted(self._wrong.values(), key=lambda c: (c.verdict != "wrong-stage", c.index))

    @property
    def culprit(self) -> Culprit | None:
        return next(iter(self.culprits), None)

    @property
    def unchecked(self) -> list[Unchecked]:
        return [Unchecked(*key, times) for key, times in self._unchecked.items()]

    def __bool__(self) -> bool:
        return bool(self._wrong)

    def __iter__(self) -> Iterator[Culprit]:
        return iter(self.culprits)

    @property
    def problem(self) -> str:
        """Why nothing can be said, where nothing was found."""
        if self.unshadowed:
            return f"{len(self.unshadowed)} compiled graphs were not shadowed: {self.unshadowed[0]}"
        if not self.counts.launches:
            return "no compiled kernel was launched, so there was nothing to judge"
        if not self.counts.buffers:
            return "none of the kernels could be judged"
        return ""

    @property
    def status(self) -> int:
        """An exit status: 0 nothing wrong, 1 something is, 2 that cannot be said."""
        return 1 if self else 2 if self.problem else 0

    # -- while it is being found -----------------------------------------------------------------------

    def add(self, culprit: Culprit) -> None:
        key = culprit.graph, culprit.kernel_name, culprit.buffer, culprit.wrapper
        known = self._wrong.get(key)
        if known is None:
            self._wrong[key] = culprit
        else:
            self._wrong[key] = replace(known, times=known.times + 1)

    def leave_out(self, kernel_name: str, argument: str, reason: str) -> None:
        key = kernel_name, argument, reason
        self._unchecked[key] = self._unchecked.get(key, 0) + 1

    # -- told ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        counts = self.counts
        return {
            "culprit": self.culprit.to_dict() if self.culprit is not None else None,
            "culprits": [c.to_dict() for c in self.culprits],
            "status": self.status,
            "problem": self.problem,
            "launches": counts.launches,
            "buffers": counts.buffers,
            "bitwise": counts.bitwise,
            "given": counts.given,
            "graphs": counts.graphs,
            "stages": counts.stages,
            "same_dtype": sorted(counts.narrow),
            "unchecked": [
                {"kernel_name": u.kernel_name, "argument": u.argument, "reason": u.reason, "times": u.times}
                for u in self.unchecked
            ],
            "unshadowed": self.unshadowed,
            "notes": self.notes,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        from .result_text import tell

        return tell(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from .html import shadow_html

        return shadow_html(self)

    def __repr__(self) -> str:
        found = self.culprit
        what = f"{found.verdict}: {found.kernel_name} {found.argument}" if found else "nothing wrong"
        return f"<ShadowResult: {what}, {self.counts.buffers} buffers judged>"


def _plain(value: float | int | str | complex) -> float | int | str:
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)  # JSON has no NaN
    return value
