"""What comparing one process with several ranks gives: printed, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelscope.events import Frame
from kernelscope.model.call import KernelCall
from kernelscope.text.amounts import counted
from kernelscope.text.frames import frame_form, source_line
from kernelscope.text.visible import visible

from .which_ranks import named

NOT_REDUCED = "missing-all-reduce"
PLACEMENT = "wrong-placement"
VALUES = "values-differ"
_MOST = 0.9  # of the calls must have been compared to say that the runs agree


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call, as far as a reader has to find it."""

    index: int
    kernel_name: str
    step: int
    phase: str
    origin: Frame | None

    @classmethod
    def of(cls, call: KernelCall) -> CallPlace:
        return cls(call.index, call.kernel_name, call.step, call.phase, call.origin)

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index, "kernel_name": self.kernel_name, "step": self.step, "phase": self.phase,
            "origin": frame_form(self.origin),
        }  # fmt: skip

    def text(self) -> str:
        at = f" at {self.origin}" if self.origin is not None else ""
        return f"call {self.index}, {self.kernel_name}{at}"


@dataclass(frozen=True, slots=True)
class ShardedDifference:
    """The first call at which the ranks together do not hold the reference's value."""

    kind: str  # missing-all-reduce, wrong-placement, values-differ
    ranks: tuple[int, ...]
    call: CallPlace  # of the first of these ranks
    reference: CallPlace
    argument: str
    moment: str  # before: an input; after: a result
    declared: str | None  # the layout of its DTensor
    held: str | None  # the layout in which the parts do give the reference's value
    arguments: tuple[tuple[str, str], ...]  # each input, and how the ranks hold it
    error: float  # relative; infinite where shapes differ
    limit: float
    reason: str
    since: CallPlace | None = None  # of the first rank: where it began
    mesh: str = ""

    def to_json(self) -> dict[str, Any]:
        finite = self.error if self.error < float("inf") else None
        return {
            "kind": self.kind, "ranks": list(self.ranks), **self.call.to_json(), "argument": self.argument,
            "moment": self.moment, "declared": self.declared, "held": self.held,
            "arguments": [{"argument": name, "held": held} for name, held in self.arguments],
            "error": finite, "limit": self.limit, "reason": self.reason, "mesh": self.mesh,
            "reference": self.reference.to_json(), "since": self.since.to_json() if self.since else None,
        }  # fmt: skip

    def lines(self) -> list[str]:
        call = self.call
        lines = [f"{self.kind}: {named(self.ranks)}, step {call.step}, call {call.index}"]
        lines.append(
            f"  {call.kernel_name}, {'argument' if self.moment == 'before' else 'result'} {self.argument}"
        )
        if call.origin is not None:
            lines.append(f"  at {call.origin}")
            if shown := source_line(call.origin):
                lines.append(f"      {shown}")
        lines.append(f"  {call.phase}; call {self.reference.index} of the run of one process")
        if self.declared:
            lines.append(f"  declared {self.declared}" + (f" on a mesh of {self.mesh}" if self.mesh else ""))
        lines += [f"  reads {name}: {held}" for name, held in self.arguments]
        lines.append(f"  why: {self.reason}")
        if self.since is not None:
            lines.append(f"  since {self.since.text()}")
        if self.error < float("inf"):
            lines.append(
                f"  relative error {self.error:.2g}; rounding in a different order explains {self.limit:.2g}"
            )
        return lines


@dataclass(frozen=True, slots=True)
class ShardedResult:
    """True when the ranks differ from the run of one process."""

    first: ShardedDifference | None
    world_size: int
    compared: dict[str, int]
    placements: dict[str, int]  # how many results were held in which layout
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.first is not None

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first.to_json() if self.first is not None else None, "world_size": self.world_size,
            "compared": self.compared, "placements": self.placements, "notes": self.notes,
        }  # fmt: skip

    def _agreement(self) -> str:
        calls, out_of = self.compared["calls"] + self.compared["amplified"], self.compared["reference_calls"]
        # The optimizer makes many calls: that they agree must not hide that others were not compared.
        unpaired, leading = self.compared["leading_unpaired"], self.compared["leading_calls"]
        if calls >= _MOST * out_of and unpaired <= (1 - _MOST) * leading:
            return (
                f"the values of {self.world_size} ranks together equal those of one process, up to rounding"
            )
        return f"no difference in the {calls:,} of {out_of:,} calls that could be compared"

    def __str__(self) -> str:
        lines = self.first.lines() if self.first is not None else [
            self._agreement()
        ]  # fmt: skip
        held = sorted(self.placements.items(), key=lambda each: -each[1])
        lines.append(
            f"compared: {counted(self.compared['calls'], 'call')} of {self.compared['reference_calls']}"
            + (f"; {', '.join(f'{count} {name}' for name, count in held[:6])}" if held else "")
        )
        if self.compared["declared"]:
            lines.append(
                f"checked: {counted(self.compared['declared'], 'argument')} against its DTensor's placements"
            )
        lines += [f"note: {note}" for note in self.notes]
        return visible("\n".join(lines))

    __repr__ = __str__
