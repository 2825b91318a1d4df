"""What shadowing found: what is wrong, what could not be checked, and how much was checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .culprit import Culprit, Unchecked
from .html import result_html

_SHOWN = 5


@dataclass(slots=True)
class Counts:
    """How much was checked."""

    launches: int = 0
    buffers: int = 0  # compared with eager
    bitwise: int = 0  # of them equal to eager bit by bit
    given: int = 0  # random numbers that cannot be drawn again
    graphs: int = 0
    stages: int = 0  # pairs of stages that were compared
    narrow: set[str] = field(default_factory=set)  # operators without float64, judged in their own dtype

    def __str__(self) -> str:
        return (
            f"{self.launches} launches of {self.graphs} graphs: {self.buffers} buffers checked, "
            f"{self.bitwise} of them bitwise equal to eager"
            + (f", {self.given} random buffers used as they are" if self.given else "")
            + (f"; {self.stages} compiler stages compared" if self.stages else "")
            + "."
        )


class ShadowResult:
    """Truthy when something is wrong; `culprit` is the first thing that is."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.unshadowed: list[str] = []  # graphs that ran and could not be followed
        self.notes: list[str] = []
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
        """Why the result is inconclusive, where nothing was found."""
        if self.unshadowed:
            return f"{len(self.unshadowed)} compiled graphs were not shadowed: {self.unshadowed[0]}"
        if not self.counts.launches:
            return "no compiled kernel was launched"
        if not self.counts.buffers:
            return "none of the kernels could be checked"
        return ""

    @property
    def status(self) -> int:
        """An exit status: 0 nothing wrong, 1 something is, 2 inconclusive."""
        return 1 if self else 2 if self.problem else 0

    # -- while it is being found -----------------------------------------------------------------------

    def add(self, *culprits: Culprit) -> None:
        for culprit in culprits:
            key = culprit.graph, culprit.kernel_name, culprit.buffer, culprit.wrapper
            known = self._wrong.get(key)
            self._wrong[key] = culprit if known is None else replace(known, times=known.times + 1)

    def leave_out(self, kernel_name: str, argument: str, reason: str) -> None:
        key = kernel_name, argument, reason
        self._unchecked[key] = self._unchecked.get(key, 0) + 1

    # -- as data and as text ---------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        counts = asdict(self.counts)
        return {
            "culprit": self.culprit.to_dict() if self.culprit is not None else None,
            "culprits": [c.to_dict() for c in self.culprits],
            "status": self.status,
            "problem": self.problem,
            "same_dtype": sorted(counts.pop("narrow")),
            **counts,
            "unchecked": [asdict(each) for each in self.unchecked],
            "unshadowed": self.unshadowed,
            "notes": self.notes,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.culprit is not None:
            yield from self.culprit.lines()
            if more := self.culprits[1:]:
                yield f"and {len(more)} more, each checked with the inputs it was given:"
                for c in more[:_SHOWN]:
                    yield f"  #{c.index} {c.kernel_name} {c.argument} ({c.buffer}): {c.reason}"
        elif self.problem:
            yield f"Inconclusive: {self.problem}."
        else:
            yield "Nothing wrong: no kernel has more error than rounding can explain."
        yield str(self.counts)
        if self.counts.narrow:
            names = ", ".join(sorted(self.counts.narrow))
            yield f"Checked in their own dtype, because they have no float64 kernel: {names}."
        if unchecked := self.unchecked:
            yield f"Not checked ({len(unchecked)}):"
            yield from (f"  {each}" for each in unchecked[:_SHOWN])
            if len(unchecked) > _SHOWN:
                yield f"  and {len(unchecked) - _SHOWN} more"
        yield from (f"Not shadowed: {each}" for each in self.unshadowed[:_SHOWN])
        yield from self.notes

    def _repr_html_(self) -> str:
        """For notebooks."""
        wrong = self.culprits
        title = f"{len(wrong)} wrong" if wrong else self.problem or "nothing wrong"
        return result_html(title, self.status == 0, str(self.counts), wrong, self.unchecked, self.notes)

    def __repr__(self) -> str:
        found = self.culprit
        what = f"{found.verdict}: {found.kernel_name} {found.argument}" if found else "nothing wrong"
        return f"<ShadowResult: {what}, {self.counts.buffers} buffers checked>"
