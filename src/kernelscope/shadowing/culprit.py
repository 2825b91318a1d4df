"""One thing that shadowing found wrong, and one that it could not check: as data and as text."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kernelscope.events import Frame

if TYPE_CHECKING:
    from kernelscope.probes.launch import Launch

Numbers = dict[str, "float | int | str"]
_SENTENCES = {
    "wrong-kernel": "has more error than rounding can explain",
    "foreign-write": "writes to a buffer that is not its output",
    "uninitialised-read": "reads uninitialised memory",
    "wrong-stage": "changes what the program computes",
    "wrong-result": "does not return what the kernels computed",
}
_SUBJECTS = {"wrong-stage": "stage", "wrong-result": "wrapper"}
_VALUES = ("compiled", "eager", "float64")  # of the worst element
_NODES_SHOWN = 12


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
    times: int = 1  # how many launches at this site were wrong

    @property
    def line(self) -> str:
        return str(self.origin[0]) if self.origin else "an unknown line"

    def to_dict(self) -> dict[str, Any]:
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        del plain["source"]
        return plain | {"numbers": {k: _for_json(v) for k, v in self.numbers.items()}}

    def lines(self) -> Iterator[str]:
        """As text, one fact a line."""
        subject = _SUBJECTS.get(self.verdict) or f"kernel #{self.index}"
        yield f"{self.verdict}: {subject} {self.kernel_name} ({self.kind}) {_SENTENCES.get(self.verdict, '')}"
        element = f", element {list(self.where)}" if self.where is not None else ""
        node = f" (FX node {self.node})" if self.node else ""
        yield f"  what       {' = '.join(filter(None, (self.argument, self.buffer)))}{node}{element}"
        yield f"  why        {self.reason}"
        for frame in self.origin[:2]:
            text = linecache.getline(frame.file, frame.line).strip()
            yield f"  from       {frame}" + (f"\n             {text}" if text else "")
        yield from (f"  {name:<10} {self.numbers[name]}" for name in _VALUES if name in self.numbers)
        if rest := [f"{k} {_short(v)}" for k, v in self.numbers.items() if k not in _VALUES]:
            yield f"  numbers    {', '.join(rest)}"
        if self.nodes:
            more = " …" if len(self.nodes) > _NODES_SHOWN else ""
            yield f"  computes   {' → '.join(self.nodes[:_NODES_SHOWN])}{more}"
        if self.joined:
            yield f"  together   with {', '.join(self.joined)}"
        if self.wrapper:
            yield f"  launched   {self.wrapper} ({self.phase}, {self.times} times wrong)"


def culprit_of(launch: Launch, index: int, verdict: str, reason: str, **more: Any) -> Culprit:
    """A culprit, with all that the launch itself tells."""
    site = launch.site
    known: dict[str, Any] = {
        "kernel_name": site.kernel.name,
        "kind": site.kernel.kind,
        "phase": launch.phase,
        "origin": site.origin,
        "wrapper": f"{site.file}:{site.line}",
        "source": site.kernel.source,
    }
    return Culprit(verdict=verdict, reason=reason, index=index, **(known | more))


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A buffer that could not be checked: neither right nor wrong."""

    kernel_name: str
    argument: str
    reason: str
    times: int = 1

    def __str__(self) -> str:
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.kernel_name} {self.argument}: {self.reason}{times}"


def _for_json(value: float | int | str | complex) -> float | int | str:
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)  # JSON has no NaN
    return value


def _short(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
