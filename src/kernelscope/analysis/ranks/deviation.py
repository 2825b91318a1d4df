"""What `ranks` finds: one place where a rank is not as the others, and the answer over all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import Frame
from kernelscope.text.amounts import counted
from kernelscope.text.frames import frame_form, source_line
from kernelscope.text.visible import visible

# Kinds of a deviation, and what each means.
COMPUTED = "computed-differently"
COLLECTIVE = "collective-differs"
ORDER = "other-collective"
CHANGED = "changed-in-memory"
RECHECK = "recheck-differs"
INPUTS = "inputs-differ"


@dataclass(frozen=True, slots=True)
class Deviation:
    """One call of one rank that is not as the ranks before it imply."""

    kind: str
    rank: int
    host: str
    index: int
    step: int
    phase: str
    kernel_name: str
    argument: str | None
    origin: Frame | None
    graph: str
    reason: str
    suspects: tuple[int, ...]  # ranks of which one is wrong; one rank where that is known
    other_rank: int | None = None  # with which it was compared
    other_index: int | None = None
    level: int = 0  # collectives that come before it, over all ranks

    @property
    def is_certain(self) -> bool:
        """Whether it is known which rank is wrong."""
        return len(self.suspects) == 1

    @property
    def order(self) -> tuple[int, int, int]:
        return self.level, self.step, self.index

    def to_json(self) -> dict[str, Any]:
        names = (
            "kind", "rank", "host", "index", "step", "phase", "kernel_name", "argument", "reason",
            "other_rank", "other_index",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {
            "origin": frame_form(self.origin),
            "graph": self.graph or None,
            "suspects": list(self.suspects),
            "collectives_before": self.level,
        }

    def lines(self) -> list[str]:
        suspects = ", ".join(map(str, sorted(self.suspects)))
        who = f"rank {self.rank}" if self.is_certain else f"one of ranks {suspects}"
        host = f" on {self.host}" if self.host and self.is_certain else ""
        found = [f"{self.kind}: {who}{host}, step {self.step}, call {self.index} of rank {self.rank}"]
        found.append(f"  {self.kernel_name}" + (f", argument {self.argument}" if self.argument else ""))
        if self.origin is not None:
            found.append(f"  at {self.origin}")
            if code := source_line(self.origin):
                found.append(f"      {code.strip()}")
        where = f"graph {self.graph}, {self.phase}" if self.graph else self.phase
        found.append(f"  {where}, after {counted(self.level, 'collective')}")
        found.append(f"  why: {self.reason}")
        return found


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank of the run."""

    rank: int
    local_rank: int
    host: str
    part: str
    calls: int
    steps: int
    collectives: int
    torch: str
    is_closed: bool


@dataclass(frozen=True, slots=True)
class RanksResult:
    """Who differs first, and where. False if all ranks agree.

    Example:
        result = kernelscope.ranks("train-1")
        if result:
            print(result.first.rank, result.first.step, result.first.kernel_name)
    """

    ranks: tuple[RankSummary, ...]
    world_size: int
    deviations: tuple[Deviation, ...] = ()  # the first of each rank, the earliest first
    found: int = 0  # deviations in all
    checked: dict[str, int] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()
    open_question: str = ""  # something differs, and whether it must not is unknown

    @property
    def first(self) -> Deviation | None:
        return self.deviations[0] if self.deviations else None

    def __bool__(self) -> bool:
        return bool(self.deviations)

    @property
    def status(self) -> int:
        """The exit status: 0 the ranks agree, 1 one differs, 2 undecided, or there was nothing to compare."""
        if self.deviations:
            return 1
        return 0 if any(self.checked.values()) and not self.open_question else 2

    def to_json(self) -> dict[str, Any]:
        """The keys are stable; docs/ranks.md has them."""
        names = RankSummary.__slots__
        return {
            "first": self.first.to_json() if self.first else None,
            "by_rank": [each.to_json() for each in self.deviations],
            "found": self.found,
            "ranks": [{name: getattr(rank, name) for name in names} for rank in self.ranks],
            "world_size": self.world_size,
            "checked": self.checked,
            "notes": list(self.notes),
            "open_question": self.open_question or None,
        }

    def __str__(self) -> str:
        return visible("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        checked = self.checked
        calls = counted(sum(r.calls for r in self.ranks), "call")
        seen = f"{len(self.ranks)} of {self.world_size} ranks, {calls}"
        if self.first is None and self.open_question:
            found = [f"undecided: {self.open_question}", seen]
        elif self.status == 2:
            hint = "see the notes" if self.notes else "record with --ops all or --recheck 1"
            found = [f"nothing could be compared: {seen}; {hint}"]
        elif self.first is None:
            found = [f"the ranks agree: {seen}"]
        else:
            found = self.first.lines()
            for each in self.deviations[1:]:
                found.append(
                    f"then rank {each.rank}: {each.kind} at call {each.index}, step {each.step}, "
                    f"{each.kernel_name}"
                )
            found.append(f"{counted(self.found, 'deviation')} in {seen}")
        found.append(
            f"checked: {checked.get('same_inputs', 0)} calls had the same inputs as a call of another rank; "
            f"{checked.get('collectives', 0)} collectives, {counted(checked.get('sent', 0), 'result')} of "
            f"them against what was sent; {checked.get('rechecked', 0)} calls were re-run"
        )
        return found + [f"note: {note}" for note in self.notes]
