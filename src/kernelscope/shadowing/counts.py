"""How much was checked, and what share of all that could have been."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kernelscope.text.amounts import counted


@dataclass(slots=True)
class Counts:
    """How much was checked."""

    launches: int = 0
    buffers: int = 0  # compared with eager
    bitwise: int = 0  # of them equal to eager bit by bit
    given: int = 0  # random numbers that cannot be drawn again
    graphs: int = 0
    stages: int = 0  # pairs of stages that were compared
    regions: int = 0  # compiled functions that were compared with the uncompiled ones
    traced_regions: int = 0  # of them, those that were compared only with the graph that Dynamo traced
    arbitrary: int = 0  # of their results, those that depend on random numbers or uninitialised memory
    unjudged_regions: int = 0
    unjudged_launches: int = 0  # with an output that was not compared
    bytes: int = 0  # of outputs that were compared
    unjudged_bytes: int = 0
    unjudged_stages: int = 0
    narrow: set[str] = field(default_factory=set)  # operators without float64, judged in their own dtype

    @property
    def shares(self) -> dict[str, float]:
        """From 0 to 1, by what was counted."""
        return {
            "launches": _share(self.launches - self.unjudged_launches, self.unjudged_launches),
            "bytes": _share(self.bytes, self.unjudged_bytes),
            "steps": _share(self.stages, self.unjudged_stages),
            "functions": _share(self.regions, self.unjudged_regions),
        }

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        narrow = sorted(plain.pop("narrow"))
        return {"same_dtype": narrow, **plain, "judged": self.shares}

    def __str__(self) -> str:
        launches = "1 launch" if self.launches == 1 else f"{self.launches} launches"
        parts = [
            f"{launches} of {counted(self.graphs, 'graph')}: {counted(self.buffers, 'buffer')} checked, "
            f"{self.bitwise} bitwise equal to eager"
        ]
        if self.given:
            parts[0] += f", {counted(self.given, 'random buffer')} used as is"
        if self.stages:
            parts.append(f"{counted(self.stages, 'compiler step')} compared")
        if self.regions:
            traced = f", {self.traced_regions} of them as Dynamo traced them" if self.traced_regions else ""
            parts.append(f"{counted(self.regions, 'compiled function')} compared with eager{traced}")
        shares = [
            f"{_percent(share)} of {_NAMES[name]}" for name, share in self.shares.items() if self._has(name)
        ]
        return f"{'; '.join(parts)}." + (f" Judged: {', '.join(shares)}." if shares else "")

    def _has(self, name: str) -> bool:
        """Whether there was anything to judge: all of nothing says nothing."""
        counts = {
            "launches": self.launches,
            "bytes": self.bytes + self.unjudged_bytes,
            "steps": self.stages + self.unjudged_stages,
            "functions": self.regions + self.unjudged_regions,
        }
        return counts[name] > 0


_NAMES = {
    "launches": "launches",
    "bytes": "output bytes",
    "steps": "compiler steps",
    "functions": "functions",
}


def _share(judged: int, unjudged: int) -> float:
    return judged / (judged + unjudged) if judged + unjudged > 0 else 1.0


def _percent(share: float) -> str:
    """Rounded, but never to 100 % where something is missing."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.3g} %"
