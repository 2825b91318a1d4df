"""What a divergence consists of, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelscope.analysis.tensor_errors import Errors
from kernelscope.events import Frame
from kernelscope.model.call import KernelCall

from .pairs import ArgumentDifference

NONDETERMINISTIC, INPUTS_DIFFER = "nondeterministic-kernel", "inputs-differ"
DIFFERENT_KERNEL, DIFFERENT_CONFIG = "different-kernel", "different-config"
MISSING_CALL, EXTRA_CALL = "missing-call", "extra-call"
VERDICTS = (
    NONDETERMINISTIC, INPUTS_DIFFER, DIFFERENT_KERNEL, DIFFERENT_CONFIG, MISSING_CALL, EXTRA_CALL
)  # fmt: skip
UNINITIALISED = "uninitialised"  # the kind of a source


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input that differs came from."""

    # "call", "graph-input", "unowned-write", "generator", "number", "form", UNINITIALISED, "outside"
    kind: str
    text: str
    index_a: int | None = None
    index_b: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One call that a divergence reached, and the call that it came from."""

    index: int
    kernel_name: str
    argument: str  # the input through which it came
    parent: int
    origin: str
    thread: str = ""  # of runs with several


@dataclass(frozen=True, slots=True)
class Spread:
    """How a divergence spread: `chain` leads from the first call to the last one in the same graph call."""

    chain: tuple[Link, ...] = ()
    differing: int = 0  # later calls with different values
    later: int = 0  # later calls altogether
    last: int | None = None  # index of the last call that differs

    def to_json(self) -> dict[str, Any]:
        return {
            "chain": [
                {"index": c.index, "kernel_name": c.kernel_name, "argument": c.argument, "parent": c.parent,
                 **({"thread": c.thread} if c.thread else {})}
                for c in self.chain
            ],
            "differing": self.differing, "later": self.later, "last": self.last,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared with what."""

    a: str = ""
    b: str = ""
    calls_a: int = 0
    calls_b: int = 0
    pairs: int = 0
    differing: int = 0  # pairs with different values
    only_a: int = 0
    only_b: int = 0
    structural: int = 0  # gaps where the runs have different calls


@dataclass(frozen=True, slots=True)
class DivergenceFields:
    """The fields of a Divergence, for those that write it as text or HTML."""

    verdict: str = ""  # one of VERDICTS; empty when nothing differs
    reason: str = ""
    index: int = -1  # in the first run; of an extra call, in the second
    index_a: int | None = None
    index_b: int | None = None
    kernel_name: str = ""
    other_kernel_name: str = ""  # in the second run, where it is another
    kind: str = ""
    argument: str | None = None
    origin: Frame | None = None
    graph: str = ""
    step: int = 0
    phase: str = ""
    thread: str = ""  # its name; empty when the runs have one thread
    thread_a: int | None = None  # its number, as calls have it
    thread_b: int | None = None
    differences: tuple[ArgumentDifference, ...] = ()
    source: Source | None = None
    spread: Spread = field(default_factory=Spread)
    errors: tuple[Errors, ...] = ()
    compared: Compared = field(default_factory=Compared)
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.verdict)


def about(call: KernelCall, other: KernelCall | None = None) -> dict[str, Any]:
    """The fields that describe the call at a divergence."""
    graph = call.graph
    return {
        "index": call.index,
        "kernel_name": call.kernel_name,
        "other_kernel_name": other.kernel_name if other and other.kernel_name != call.kernel_name else "",
        "kind": call.kind,
        "origin": call.origin,
        "graph": f"{graph.name or graph.id} ({graph.direction})" if graph is not None else "",
        "step": call.step,
        "phase": call.phase,
    }
