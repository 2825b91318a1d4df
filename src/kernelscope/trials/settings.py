"""What a trial changes about the compiler: switches that are off, and the backend. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# coarse to fine
AXES = (
    "backend", "config", "pass", "decomposition", "lowering", "fusion", "autotune", "kernel", "execution",
)  # fmt: skip
AT_RUN_TIME = ("kernel", "execution")  # switched in compiled code, nothing is compiled again

FOUND = "found.jsonl"  # the file in which a trial writes the switches that it meets; it may crash later


@dataclass(frozen=True, slots=True)
class Switch:
    """A part of the compiler that can be turned off; a config that is off has `value`."""

    axis: str
    name: str
    value: Any = None
    info: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r}" if self.axis == "config" else f"{self.axis} {self.name}"

    def to_json(self) -> dict[str, Any]:
        return {"axis": self.axis, "name": self.name, "value": self.value, "info": dict(self.info)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Switch:
        return cls(str(data["axis"]), str(data["name"]), data.get("value"), dict(data.get("info", {})))


# All launches, also of kernels that the baseline does not have.
EVERY_KERNEL = Switch("kernel", "*")


@dataclass(frozen=True, slots=True)
class Settings:
    """All differences from the baseline."""

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
        """Whether eager replaces every kernel, so that none has to be built."""
        return EVERY_KERNEL in self.off

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "off": [[s.axis, s.name, s.value] for s in sorted_switches(self.off)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        off = frozenset(Switch(str(axis), str(name), value) for axis, name, value in data["off"])
        return cls(off, str(data["backend"]))


def sorted_switches(switches: Iterable[Switch]) -> list[Switch]:
    return sorted(switches, key=lambda s: (AXES.index(s.axis), s.name))
