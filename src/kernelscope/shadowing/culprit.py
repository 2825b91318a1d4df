"""What shadowing found wrong, what it could not check, and where it failed itself: as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kernelscope.events import Frame, Site

from .verdicts import OwnOperator, kind_of, own_operator

if TYPE_CHECKING:
    from kernelscope.probes.launch import Launch

_STEPS_WITH_PASSES = ("pre-grad", "joint", "post-grad")  # which of their passes it is, is not known
Numbers = dict[str, "float | int | str"]


@dataclass(frozen=True, slots=True)
class Culprit:
    """One thing that is wrong."""

    verdict: str  # a name in `verdicts.VERDICTS`
    reason: str
    index: int  # of the launch, counted over the whole program; of a stage: -1
    kernel_name: str
    kind: str  # cpp | triton | extern | stage | wrapper
    argument: str  # the kernel's name for what is wrong
    buffer: str = ""  # the wrapper's name for it
    node: str = ""  # the FX node whose value it should be
    nodes: tuple[str, ...] = ()  # what the kernel computes it from, and how
    pattern: str = ""  # of a compiler pass: the pattern that was applied, and where it is defined
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

    @property
    def step(self) -> str:
        """The step of the compiler that is wrong, in words; empty where it is a launch, or not known."""
        by, subject = self.kernel_name, kind_of(self.verdict).subject
        if subject == "function":
            return by if self.buffer else ""
        if subject != "stage" or by in ("", self.buffer):
            return self.buffer if subject == "stage" else ""
        if self.buffer == "decomposition":
            return f"decomposition of {by}"
        return f"partitioner {by}" if self.buffer == "partition" else f"pass {by} ({self.buffer})"

    @property
    def is_step(self) -> bool:
        """A step of the compiler is wrong, rather than a launch."""
        return kind_of(self.verdict).is_step

    @property
    def tools(self) -> tuple[str, ...]:
        """The commands to go on with: bisect only where the cause is still to be found."""
        tools, step = kind_of(self.verdict).tools, self.step
        if not step or step in _STEPS_WITH_PASSES:
            return tools
        return () if step == "Dynamo" else tuple(tool for tool in tools if tool != "bisect")

    @property
    def own_operator(self) -> OwnOperator | None:
        """The operator of the program's that is at fault instead of the compiler."""
        return own_operator(self.verdict, self.kind, self.kernel_name, self.reason)

    def to_dict(self) -> dict[str, Any]:
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        del plain["source"]
        numbers = {k: _for_json(v) for k, v in self.numbers.items()}
        return plain | {"step": self.step, "numbers": numbers}


@dataclass(frozen=True, slots=True)
class Ran:
    """A launch that is over, without its arguments: what is needed to name it."""

    site: Site
    phase: str


def culprit_of(launch: Launch | Ran, index: int, verdict: str, reason: str, **more: Any) -> Culprit:
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


@dataclass(frozen=True, slots=True)
class Padded:
    """A result with gaps between its rows, where eager's is dense: its values are right."""

    function: str
    result: str
    strides: tuple[int, ...]
    eager_strides: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.result[:1].upper()}{self.result[1:]} of {self.function} is padded: its strides are "
            f"{self.strides}, and in eager {self.eager_strides}. "
            "A view of it may fail where it works in eager. "
            "torch._inductor.config.shape_padding = False, or comprehensive_padding = False, avoids it."
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A mistake of kernelscope itself, which left something unchecked."""

    where: str
    error: str
    traceback: str
    times: int = 1

    def __str__(self) -> str:
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.where}: {self.error}{times}"


def _for_json(value: float | int | str | complex) -> float | int | str:
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)  # JSON has no NaN
    return value
