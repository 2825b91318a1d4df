"""What a comparison found."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from kernelscope.events import Frame
from kernelscope.text.amounts import counted
from kernelscope.text.frames import frame_form

_ENOUGH = 0.5  # of the values of one of the programs


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call of one of the programs."""

    index: int
    name: str
    phase: str
    origin: tuple[Frame, ...]

    @property
    def line(self) -> str:
        return str(self.origin[0]) if self.origin else "an unknown line"

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index, "name": self.name, "phase": self.phase,
            "origin": [frame_form(frame) for frame in self.origin],
        }  # fmt: skip

    def __str__(self) -> str:
        return f"#{self.index} {self.name} ({self.phase}) at {self.line}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first call that differs by more than rounding explains, and what the reference does there."""

    kind: str  # computes | reads | stops | returns | rounds-whole-numbers | number
    call: ComparedCall  # of the other program
    reference: ComparedCall | None  # what it was compared with
    reads: ComparedCall | None = None  # what it reads in place of what the reference reads
    missing: ComparedCall | None = None  # the call of the reference that has no counterpart
    difference: float | None = None  # rms, relative
    noise: float | None = None  # what rounding explains of it
    max_abs: float | None = None
    number: str = ""  # that the call was given, where the reference was given another: eps=0.001
    reference_number: str = ""
    forward: ComparedCall | None = None  # in a recorded backward pass: what the gradient is of

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in ("difference", "noise", "max_abs")}
        finite = {k: v if v is not None and v < float("inf") else None for k, v in numbers.items()}
        names = ("call", "reference", "reads", "missing", "forward")
        calls = {name: getattr(self, name) for name in names}
        given = {name: getattr(self, name) or None for name in ("number", "reference_number")}
        calls_found = {k: v.to_dict() if v else None for k, v in calls.items()}
        return {"kind": self.kind, **calls_found, **finite, **given}


@dataclass(frozen=True, slots=True)
class Amplifier:
    """A call of the reference that makes a harmless difference large."""

    call: ComparedCall
    gain: float  # noise of its result, over that of its inputs; 0 for an integer result
    flipped: float  # share of an integer result that one rounding of the inputs changes
    times: int  # how often this line did

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"call": self.call.to_dict()}


@dataclass(frozen=True, slots=True)
class FewerDigits:
    """A setting lets a library compute with fewer digits in one program: the first call that shows it."""

    digits: str  # of the other program: tf32, bf16, float32
    reference_digits: str
    call: ComparedCall
    reference: ComparedCall
    difference: float  # rms, relative: the largest of all such calls
    times: int

    def to_dict(self) -> dict[str, Any]:
        calls = {"call": self.call.to_dict(), "reference": self.reference.to_dict()}
        return asdict(self) | calls

    def __str__(self) -> str:
        text = f"{self.call} computes in {self.digits}, and the reference in {self.reference_digits}"
        many = f", the largest of {self.times} such calls" if self.times > 1 else ""
        return f"{text}: {self.difference:.2g} of its size (rms){many}"


@dataclass(slots=True)
class ComparisonResult:
    """True when something differs by more than rounding explains."""

    first: Difference | None = None
    others: list[Difference] = field(default_factory=list)  # that do not follow from the first
    fewer_digits: list[FewerDigits] = field(default_factory=list)  # rounding that a setting made coarser
    amplifiers: list[Amplifier] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)  # of the values of each program: those compared
    smallest: tuple[float, float] = (0.0, 0.0)  # error of a result that is seen: in the middle, at most
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: str = ""

    def __bool__(self) -> bool:
        return self.first is not None

    @property
    def problem(self) -> str:
        if self.failed:
            return self.failed
        if self.failures:
            return f"kernelscope itself failed: {self.failures[0]}"
        for which, count in self.calls.items():
            if not count:
                name = "reference" if which == "reference" else "other program"
                return f"the {name} called no operator of torch, so there is nothing to compare"
        if not self.values.get("matched"):
            return "no value of the one program was found in the other"
        if self.first is None and self.shares and max(self.shares.values()) < _ENOUGH:
            return f"{self._shares_text()}; that differs by rounding only, but is too little to judge"
        return ""

    @property
    def status(self) -> int:
        """An exit status: 0 rounding explains all differences, 1 it does not, 2 inconclusive."""
        return 1 if self else 2 if self.problem else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first.to_dict() if self.first is not None else None,
            "status": self.status,
            "problem": self.problem,
            "others": [each.to_dict() for each in self.others],
            "fewer_digits": [each.to_dict() for each in self.fewer_digits],
            "amplifiers": [each.to_dict() for each in self.amplifiers],
            "calls": self.calls,
            "values": self.values,
            "shares": self.shares,
            "smallest": {"median": self.smallest[0], "most": self.smallest[1]},
            "failures": self.failures,
            "notes": self.notes,
        }

    def _shares_text(self) -> str:
        ours, theirs = (f"{100 * self.shares[which]:.0f} %" for which in ("reference", "other"))
        return (
            f"{ours} of what the reference computed was compared, and {theirs} of what the other program did"
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __repr__(self) -> str:
        what = f"error: {self.first.call}" if self.first else self.problem or "rounding"
        return f"<ComparisonResult: {what}, {counted(self.values.get('matched', 0), 'value')} matched>"

    def __str__(self) -> str:
        return "\n".join(self._lines(most=4))

    def details(self) -> str:
        """The same with everything that was found."""
        return "\n".join(self._lines(most=len(self.others) + len(self.amplifiers)))

    def _lines(self, most: int) -> list[str]:
        if self.first is not None:
            lines = _difference_lines(self.first)
            lines += [f"  also       {each.call}" for each in self.others[:most]]
            more = len(self.others) - most
            lines += [f"  also       {more} more"] if more > 0 else []
        elif self.problem:
            lines = [f"inconclusive: {self.problem}"]
        else:
            few = self.shares and min(self.shares.values()) < _ENOUGH
            rest = " of the values that both have; most of one program's were not compared"
            lines = ["rounding: it explains every difference" + (rest if few else "")]
        lines += [f"  setting    {each}" for each in self.fewer_digits]
        lines += [f"  amplifier  {_amplifier_text(each)}" for each in self.amplifiers[:most]]
        if self.values:
            lines.append(
                f"{self.values['matched']} of {self.values['reference']} values of the reference were found "
                f"in the other program, which made {counted(self.calls['other'], 'call')}."
            )
        if self.shares and not self.problem:
            lines.append(f"{self._shares_text()}.")
        if self.first is None and self.smallest[1]:
            lines.append(
                f"Errors below {self.smallest[0]:.2g} of a call's result (rms; median of the calls, at most "
                f"{self.smallest[1]:.2g}) cannot be distinguished from rounding."
            )
        return [*lines, *self.failures[:4], *self.notes]


def _difference_lines(first: Difference) -> list[str]:
    verb = _VERBS[first.kind]
    lines = [f"error: {first.call} {verb}"]
    if first.reference is not None:
        lines.append(f"  reference  {first.reference}")
    if first.reads is not None:
        lines.append(f"  reads      the result of {first.reads}")
    if first.missing is not None:
        lines.append(f"  instead of {first.missing}")
    if first.forward is not None:
        lines.append(f"  forward    {first.forward}")
    if first.number:
        lines.append(f"  number     {first.number}, and in the reference {first.reference_number}")
        if first.difference is not None:
            lines.append(
                f"  how much   in float64 {first.difference:.2g} of its size (rms); rounding explains "
                f"{first.noise or 0.0:.2g}, so the values alone do not show it"
            )
    elif first.difference is not None and not math.isfinite(first.difference):
        lines.append("  how much   one of the two is infinite, NaN or not zero, and the other is not")
    elif first.difference is not None:
        part = f"{first.difference:.2g} of its size (rms); rounding explains {first.noise or 0.0:.2g}"
        lines.append(f"  how much   {part}; at most {first.max_abs:.3g}")
    return lines


def _amplifier_text(each: Amplifier) -> str:
    if each.gain:
        amount = f"{each.gain:.3g} times the difference of its inputs"
    else:
        amount = f"one rounding of its inputs changes {each.flipped:.2%} of its integers"
    return f"{each.call}: {amount}" + (f", {each.times} times" if each.times > 1 else "")


_VERBS = {
    "computes": "differs by more than its inputs and rounding explain",
    "reads": "reads values that differ from the reference's",
    "stops": "lacks a step: the reference changes this result again",
    "returns": "computed the value that is returned, where the reference returns a different value",
    "number": "was given a number that differs from the reference's",
    "rounds-whole-numbers": "gives integers that its dtype cannot represent",
}
