"""What a trial changes, in words that can be written to a file: switches, settings, outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# coarse to fine
AXES = (
    "backend", "config", "pass", "decomposition", "lowering", "fusion", "autotune", "kernel", "execution",
)  # fmt: skip
AT_RUN_TIME = ("kernel", "execution")  # switched in compiled code, nothing is compiled again

FOUND = "found.jsonl"  # the file of the switches that a trial met, also if it did not survive
PASSED, FAILED, RAISED, KILLED, TIMED_OUT = "passed", "failed", "raised", "killed", "timed out"


@dataclass(frozen=True, slots=True)
class Switch:
    """One thing that can be switched off; off, a config has `value`."""

    axis: str
    name: str
    value: Any = None
    info: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r}" if self.axis == "config" else f"{self.axis} {self.name}"

    def to_json(self) -> dict[str, Any]:
        return {"axis": self.axis, "name": self.name, "value": self.value, "info": dict(self.info)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Switch:
        return cls(str(told["axis"]), str(told["name"]), told.get("value"), dict(told.get("info", {})))


# All launches, also of kernels that the unchanged program does not have.
EVERY_KERNEL = Switch("kernel", "*")


@dataclass(frozen=True, slots=True)
class Settings:
    """All that is different from the program as it is."""

    off: frozenset[Switch] = frozenset()
    backend: str = ""  # in place of the program's own

    def names(self, axis: str) -> frozenset[str]:
        return frozenset(switch.name for switch in self.off if switch.axis == axis)

    @property
    def configs(self) -> dict[str, Any]:
        return {switch.name: switch.value for switch in sorted_switches(self.off) if switch.axis == "config"}

    @property
    def of_compiler(self) -> Settings:
        """The part that changes which code is generated, or built."""
        kept = frozenset(s for s in self.off if s.axis not in AT_RUN_TIME or s == EVERY_KERNEL)
        return Settings(kept, self.backend)

    @property
    def replaces_all(self) -> bool:
        """Whether every kernel is replaced by eager, so that none has to be built."""
        return EVERY_KERNEL in self.off

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "off": [[s.axis, s.name, s.value] for s in sorted_switches(self.off)],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Settings:
        off = frozenset(Switch(str(axis), str(name), value) for axis, name, value in told["off"])
        return cls(off, str(told["backend"]))


def sorted_switches(switches: Iterable[Switch]) -> list[Switch]:
    return sorted(switches, key=lambda s: (AXES.index(s.axis), s.name))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one trial ended."""

    kind: str  # passed | failed | raised | killed | timed out
    what: str = ""  # the exception, the verdict, the signal
    details: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" if self.what else self.kind

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "what": self.what, "details": dict(self.details), "seconds": self.seconds,
        }  # fmt: skip

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Outcome:
        return cls(
            str(told["kind"]), str(told["what"]), dict(told.get("details", {})), float(told.get("seconds", 0))
        )
