"""What a bisection came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelscope.trials.settings import AXES, Switch

from .config_choices import line


@dataclass(frozen=True, slots=True)
class Cause:
    """The switches of one axis that the failure needs: with one of them off, it is gone."""

    axis: str
    switches: tuple[Switch, ...]
    candidates: int = 1  # among how many it was looked for
    together: bool = False  # each of them alone does no harm

    def __str__(self) -> str:
        joint = " together with " if self.together else ", and on its own "
        return f"{self.axis} " + joint.join(_name(each) for each in self.switches)

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
    failure: str = ""  # of the unchanged program
    workaround: tuple[str, ...] = ()  # lines of Python, tried
    sought_workaround: bool = True
    innocent: dict[str, str] = field(default_factory=dict)  # by axis: why it explains nothing
    notes: list[str] = field(default_factory=list)
    problem: str = ""  # why nothing was found
    trials: int = 0
    resumed: int = 0  # of them, from the journal
    seconds: float = 0.0
    failed: int = 0  # of `runs` runs of the unchanged program
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
        """An exit status: 0 a cause was found, 1 none, 2 there is nothing to look for."""
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
        from .result_text import tell

        return tell(self)

    def __repr__(self) -> str:
        return f"<BisectResult: {self.cause or self.problem or 'no cause found'}, {self.trials} trials>"


# Which execution it happens in says when, not what.
_FINEST_FIRST = (*(axis for axis in reversed(AXES) if axis != "execution"), "execution")


def workaround_of(cause: Cause) -> tuple[str, ...]:
    """Lines that switch a cause off, where there are such."""
    switches = cause.switches[-1:] if cause.together else cause.switches
    if cause.axis == "config":
        return tuple(line(switch.name, switch.value) for switch in switches)
    if cause.axis == "pass":
        names = ",".join(switch.name.rpartition("/")[2] for switch in switches)
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
    if cause.axis == "backend":
        return (f'torch.compile(…, backend="{cause.switches[0].value}")',)
    return ()
