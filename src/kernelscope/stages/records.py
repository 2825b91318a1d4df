"""What a recording keeps of compiling: plain records, in the order in which the compiler made them.

A `Compilation` is one frame that Dynamo traced, or one graph that Inductor made of it; every other record
belongs to a compilation by its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelscope.events import Frame

FRAME = "frame"  # the direction of what comes before forward and backward are apart
Made = Literal["", "compiled", "cached", "cached-in-part", "failed"]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One frame of the user's, traced by Dynamo, or one graph that was made of it."""

    id: int
    compile_id: str
    direction: str  # FRAME, or that of a graph: forward, backward, inference
    frame: int = -1  # of a graph: the compilation of its frame
    name: str = ""  # Inductor's AOT id, "0_forward"; of a frame the function's name
    cache_key: str = ""
    made: Made = ""  # how; empty while it is under way
    start_ns: int = 0
    duration_ns: int = -1
    origin: tuple[Frame, ...] = ()  # of a frame: the function that was compiled, and who called it


@dataclass(frozen=True, slots=True)
class Stage:
    """One representation on the way down, or the change that one pass made."""

    compilation: int
    name: str
    language: str  # python, cpp, text, json, diff
    text: str
    start_ns: int = 0
    duration_ns: int = -1


@dataclass(frozen=True, slots=True)
class FxOrigin:
    """A node of the post-grad graph, and where it comes from."""

    name: str
    target: str = ""
    pre_grad: tuple[str, ...] = ()  # names in the graph before autograd
    frames: tuple[Frame, ...] = ()  # innermost first, the user's own before a library's


@dataclass(frozen=True, slots=True)
class Provenance:
    """Which nodes one launch in a wrapper computes."""

    compilation: int
    kernel: str
    handle: int  # stands beside the launch in the wrapper's code
    buffers: tuple[str, ...] = ()
    nodes: tuple[FxOrigin, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Two scheduler nodes that were considered for one kernel, and why they were not fused."""

    compilation: int
    first: str
    second: str
    reason: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class TimedConfig:
    """One config or algorithm that was timed for a kernel."""

    compilation: int
    kernel: str
    config: str
    nanoseconds: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Incident:
    """A graph break, a recompilation or a failed compilation."""

    kind: Literal["graph-break", "recompile", "failure"]
    compilation: int
    compile_id: str
    reason: str
    origin: tuple[Frame, ...] = ()
    detail: str = ""  # the compiler's whole message
    source: str = ""  # the code that did not compile, with the line marked
    stage: str = ""  # of a failure: how far it came


Record = Compilation | Stage | Provenance | Refusal | TimedConfig | Incident
KINDS: tuple[type, ...] = (Compilation, Stage, Provenance, Refusal, TimedConfig, Incident)
