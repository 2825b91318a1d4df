"""What a bisection found, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelscope.text.amounts import counted
from kernelscope.trials.settings import AXES, Switch


@dataclass(frozen=True, slots=True)
class Cause:
    """The switches of one axis that the failure needs: with one of them off, the program passes."""

    axis: str
    switches: tuple[Switch, ...]
    candidates: int = 1  # how many switches the axis has
    together: bool = False  # each of them alone does not fail

    def __str__(self) -> str:
        joint = " together with " if self.together else ", and independently "
        return f"{self.axis} " + joint.join(_name(each) for each in self.switches)

    def details(self) -> Iterator[str]:
        for switch in self.switches:
            info = switch.info
            if info.get("nodes"):
                yield f"  computes   {' → '.join(info['nodes'][:12])}"
            if info.get("origin"):
                yield f"  from       {info['origin']}"
            if info.get("joined"):
                yield f"  together   with {', '.join(info['joined'])}, whose results it finishes"
            if info.get("function"):
                yield f"  function   {info['function']}"
            if info.get("step"):
                yield f"  step       {info['step']}"
            if info.get("target"):
                yield f"  operator   {info['target']}"
        if self.candidates > 1:
            yield f"  out of     {counted(self.candidates, 'candidate')}"

    def to_json(self) -> dict[str, Any]:
        return {
            "axis": self.axis,
            "switches": [switch.to_json() for switch in self.switches],
            "together": self.together,
            "candidates": self.candidates,
        }


def _name(switch: Switch) -> str:
    if switch.axis == "config":
        return f"{switch.name} (with {switch.value!r} it passes)"
    return switch.name


@dataclass
class BisectResult:
    """Truthy when a cause was found; `cause` is the finest one."""

    causes: dict[str, Cause] = field(default_factory=dict)  # by axis
    failure: str = ""  # of the baseline
    workaround: tuple[str, ...] = ()  # lines of Python, tried
    sought_workaround: bool = True
    innocent: dict[str, str] = field(default_factory=dict)  # by axis: why it explains nothing
    notes: list[str] = field(default_factory=list)
    problem: str = ""  # why nothing was found
    raised: str = ""  # the exception because of which the check did not decide
    trials: int = 0
    resumed: int = 0  # of them, from the journal
    seconds: float = 0.0
    failed: int = 0  # of `runs` runs of the baseline
    runs: int = 0
    repeats: int = 1  # of each trial that passed
    confidence: float = 1.0
    folder: str = ""

    def __bool__(self) -> bool:
        return bool(self.causes)

    @property
    def cause(self) -> Cause | None:
        found = [self.causes[axis] for axis in _FINEST_FIRST if axis in self.causes]
        return found[0] if found else None

    @property
    def status(self) -> int:
        """An exit status: 0 a cause was found, 1 none was found, 2 there was nothing to search for."""
        return 0 if self.causes else 2 if self.problem else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "cause": self.cause.to_json() if self.cause is not None else None,
            "causes": {axis: cause.to_json() for axis, cause in self.causes.items()},
            "workaround": list(self.workaround),
            "failure": self.failure,
            "innocent": self.innocent,
            "notes": self.notes,
            "problem": self.problem,
            "status": self.status,
            "trials": self.trials,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "failed": self.failed,
            "runs": self.runs,
            "repeats": self.repeats,
            "confidence": self.confidence,
            "folder": self.folder,
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        cause = self.cause
        if cause is not None:
            yield f"cause: {cause}"
            yield from cause.details()
        else:
            yield (
                self.problem
                or "No cause was found: the program fails with each part of the compiler switched off."
            )
        if self.failure:
            yield f"  failure    {self.failure.splitlines()[0]}"
        for axis, other in self.causes.items():
            if cause is None or axis != cause.axis:
                yield f"  also       {other}"
        for i, text in enumerate(self.workaround):
            yield f"  {'workaround' if not i else '':<10} {text}"
        if cause is not None and not self.workaround and self.sought_workaround:
            yield "  workaround none found"
        for axis, why in self.innocent.items():
            yield f"  not        {axis}: {why}"
        if self.failed:
            yield f"  confidence {self._confidence()}"
        if self.runs:
            resumed = f", {self.resumed} of them from the journal" if self.resumed else ""
            yield f"  trials     {self.trials} in {self.seconds:.1f} s{resumed}"
        yield from (f"  note       {note}" for note in self.notes)
        if self.folder:
            yield f"  journal    {self.folder}"

    def _confidence(self) -> str:
        often = f"failed in {self.failed} of {counted(self.runs, 'run')}"
        if self.failed == self.runs:
            return f"{often}; one run is conclusive"
        return f"{self.confidence:.1%}: {often}; each trial had to pass {counted(self.repeats, 'time')}"

    def __repr__(self) -> str:
        found = self.cause or self.problem or "no cause found"
        return f"<BisectResult: {found}, {counted(self.trials, 'trial')}>"


# The execution tells when it fails, not what is wrong.
_FINEST_FIRST = (*(axis for axis in reversed(AXES) if axis != "execution"), "execution")


def workaround_of(cause: Cause) -> tuple[str, ...]:
    """Lines of Python that switch a cause off, if there are any."""
    switches = cause.switches[-1:] if cause.together else cause.switches
    if cause.axis == "config":
        return tuple(f"{switch.name} = {switch.value!r}" for switch in switches)
    if cause.axis == "pass":
        names = ",".join(dict.fromkeys(switch.name.rpartition("/")[2] for switch in switches))
        return (f"torch._inductor.config.disabled_passes = {names!r}",)
    if cause.axis == "lowering":
        targets = dict.fromkeys(str(switch.info.get("target", "")) for switch in switches)
        return (
            "from torch._inductor.lowering import make_fallback",
            *(f"make_fallback(torch.ops.{target}, warn=False, override_decomp=True)" for target in targets),
        )
    if cause.axis == "decomposition":
        return tuple(
            f"torch._inductor.decomposition.decompositions.pop(torch.ops.{switch.name})"
            for switch in switches
        )
    if cause.axis == "backend" and cause.switches[0].value:
        return (f'torch.compile(…, backend="{cause.switches[0].value}")',)
    return ()
