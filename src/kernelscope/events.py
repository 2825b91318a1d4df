"""The vocabulary of a recording: what probes emit and what a run is made of.

Everything here is plain data. Two records describe a launch, because most of it is the same each time:
a `Site` is written once, a `Call` is small and written for every launch.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, Literal, NamedTuple

Kind = str  # "triton", "cpp", "extern", "op", "gcu"; backends may add theirs
Producer = str  # "inductor", "user", "eager", "gcu", "replay"
Role = Literal["in", "out", "inout", "scalar", "unused"]  # unused: passed, but neither read nor written
Phase = Literal["forward", "backward", "optimizer", "other"]
Direction = Literal["forward", "backward", "inference"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of the user's program."""

    file: str
    line: int
    function: str = ""
    is_foreign: bool = field(default=False, compare=False, repr=False)  # its file is not to be opened

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is the same at every call about a tensor argument."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    type: str = "Tensor"  # the subclass it belongs to, for the parts of a subclass; conj(Tensor): lazily
    unread: str = ""  # why its values cannot be read (meta, sparse, …); empty when they can

    @property
    def reading(self) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The same for all that read the same elements in the same order, from the same element on.

        Sizes and strides from the innermost dimension on, with neighbours that are one run made one.
        """
        dims: list[tuple[int, int]] = []
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if dims and size != 1 and stride == dims[-1][0] * dims[-1][1]:
                dims[-1] = (dims[-1][0] * size, dims[-1][1])
            elif size != 1:
                dims.append((size, stride))
        lazily = self.type if self.type.startswith(("conj(", "neg(")) else ""
        return f"{lazily}{self.dtype}", tuple(dims)

    @property
    def short_dtype(self) -> str:
        return DTYPE_SHORT.get(self.dtype, self.dtype)

    @property
    def text(self) -> str:
        """ "f32[8, 4]"."""
        return f"{self.short_dtype}{list(self.shape)}"

    @property
    def short(self) -> str:
        return f"t: {self.text}" + (f" ({self.unread})" if self.unread else "")

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def item_size(self) -> int:
        return item_size(self.dtype)

    @property
    def nbytes(self) -> int:
        return self.numel * self.item_size


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a site, or one tensor that the kernel returned."""

    name: str
    role: Role  # as declared by name, constness or schema: a claim
    tensor: TensorSpec | None = None
    wrapper_name: str = ""  # what the calling code named it: buf3, arg0_1
    value: Any = None  # of a non-tensor argument that is the same at every call
    varies: bool = False  # a non-tensor argument whose value stands in the call
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """One piece of code that launches run."""

    id: int
    name: str
    kind: Kind
    producer: Producer
    source: str = ""
    source_hash: str = ""  # with the numbering suffix of its name normalised


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph."""

    id: int
    direction: Direction
    name: str = ""  # Inductor's AOT id, "0_forward"
    compile_id: str = ""
    cache_key: str = ""
    source: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """One location that launches a kernel, with all that is the same each time."""

    id: int
    kernel: Kernel
    args: tuple[Arg, ...]
    file: str = ""  # the generated wrapper, or the file that called it
    line: int = 0
    grid: tuple[int, ...] | None = None
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    origin: tuple[Frame, ...] = ()  # the user's lines, innermost first
    device: str = ""
    collective: str = ""  # process group of a collective

    @property
    def readable(self) -> list[int]:
        """Arguments that are tensors whose memory can be read: those that have a storage in a call."""
        return [i for i, a in enumerate(self.args) if a.tensor is not None and not a.tensor.unread]

    def with_returns(self, id: int, returns: tuple[Arg, ...]) -> Site:
        return replace(self, id=id, args=self.args + returns)


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes three times as long to make
class GraphCall:
    """One execution of a compiled graph."""

    index: int
    graph: Graph
    thread: int = 0
    stream: int = 0
    phase: Phase = "forward"
    step: int = 0
    parent: int = -1  # key of the call that executed it


@dataclass(frozen=True, slots=True)
class SteadySite:
    """A site whose launches are all alike: what the first one showed holds for the others."""

    site: Site
    uninitialised: tuple[int, ...]
    # Where its fingerprints are, counted from the first of its graph call or replay; None where that is not
    # known in advance.
    pre: dict[int, int] | None = None
    post: dict[int, int] | None = None
    storages: tuple[int, ...] = ()  # numbered within the graph call or replay
    epochs: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    scalars: tuple[Any, ...] = ()  # where the launches are alike in these too
    # Only of launches inside a CUDA graph:
    poison: dict[int, int] | None = None
    phase: Phase = "other"

    @property
    def storage_of(self) -> dict[int, int]:
        """By argument."""
        return dict(zip(self.site.readable, self.storages, strict=False))

    @property
    def has_layout(self) -> bool:
        """Whether it knows more of a call than the call's graph call does."""
        return self.pre is not None or bool(self.storages or self.scalars)


# A launch in few words: the number of its steady site, its graph call, when. Bytes, because a million objects
# that Python's garbage collector had to look at would slow the program down.
CompactCall = bytes
COMPACT_CALL = Struct("<qqq")


@dataclass(frozen=True, slots=True, eq=False)
class CapturedGraph:
    """The launches of a CUDA graph that a recording wants: each replay makes one call of each."""

    launches: tuple[SteadySite, ...]
    numbers: tuple[int, ...]  # of these steady sites
    slots: int  # of fingerprints that one replay leaves
    progress: Any = None  # a GraphProgress, with the word of each launch in it
    places: tuple[int, ...] = ()


class Replay(NamedTuple):
    """One replay of a CUDA graph. It stands for all of its calls until the run is read."""

    graph: CapturedGraph
    graph_call: int
    step: int
    number: int  # among the replays of this graph, counted from 0
    thread: int
    stream: int
    start_ns: int
    first: int  # slot of its first fingerprint; -1 when it has none
    fingerprinter: Any


@dataclass(slots=True)
class Call:
    """One launch at a site, or one operator."""

    index: int  # its position in the run; known when the run is read
    site: Site
    graph_call: int = -1
    step: int = 0
    replay: int = -1  # of a CUDA graph, counted from 0; -1 when launched from Python
    thread: int = 0
    stream: int = 0
    phase: Phase = "other"
    start_ns: int = 0
    parent: int = -1  # key of the call that made it
    scalars: tuple[Any, ...] = ()
    storages: tuple[int, ...] = ()  # one entry per tensor argument, in the order of the site's tensors
    epochs: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    uninitialised: tuple[int, ...] = ()  # argument indices whose prior contents were uninitialised
    duration_ns: int = -1  # -1: not measured
    depth: int = 0
    pre: dict[int, int] | None = None  # argument index -> fingerprint slot
    post: dict[int, int] | None = None
    poison: dict[int, int] | None = None  # of outputs that were filled with a sentinel before the launch
    fingerprinter: Any = None  # reads the slots
    error: str = ""  # the exception that the kernel raised
    key: int = -1  # its number while it was recorded; a note has none
    is_unwritten: bool = False  # a crash has left it in the flight recorder alone


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Where, when and how a run was recorded."""

    uuid: str
    group: str
    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    parent_pid: int
    monotonic_ns: int  # the same moment on two clocks: calls carry the first
    realtime_ns: int
    devices: tuple[str, ...]
    versions: dict[str, str] = field(hash=False)
    settings: dict[str, object] = field(hash=False)
    main_thread: int = 0  # as calls name threads; 0 in a run of an older version


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes three times as long to make
class Mark:
    """Something that is not a launch but belongs between launches: a step, a module, a profiler range."""

    index: int  # of the call that comes next
    kind: str
    text: str


# Kinds of marks: a device mesh; an operator on DTensors, whose local operators follow until it ends.
FOREIGN_MEMORY = "foreign-memory"  # kind of a mark: a storage that torch did not allocate
MESH, DTENSOR_OPERATOR, DTENSOR_ENDS = "device-mesh", "dtensor-operator", "dtensor-ends"

ABOUT_NOTHING = ("nothing-compiled", "nothing-matched")  # kinds of findings that say why a run has no calls


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or odd that was noticed."""

    kind: str
    message: str
    call: int = -1
    kernel: str = ""
    arg: str = ""

    def __str__(self) -> str:
        where = f"call {self.call} " if self.call >= 0 else ""
        message = self.message.strip().replace("\n", "\n      ")  # no line of it passes for one of ours
        return f"[{self.kind}] {where}{message}"


RANGE_PREFIX = "kernelscope#"  # of a call in a profiler's trace
OWN_RANGE = "kernelscope: own work"  # in it: what is not the program's
CPP_RANGE = "kernelscope: C++ wrapper"  # around launches that are logged, and become calls afterwards
STOPPED_RANGE = "kernelscope: recomputation stops"  # in the operator at which torch.utils.checkpoint stops
CAPTURED_RANGE = "kernelscope: captured launch"  # one that each replay of its CUDA graph makes a call of
CAPTURE_BEGINS, CAPTURE_ENDS = "kernelscope: capture begins ", "kernelscope: capture ends "  # and its number
REPLAY_RANGE = "kernelscope: replay "  # of the CUDA graph with this number
UNSEEN_REPLAY = "kernelscope: replay of a CUDA graph that was captured before the recording"
READ_REPLAY = f"{UNSEEN_REPLAY}, as "  # and how many nodes for the GPU it has: each of them is a call
INPUTS_RANGE = "kernelscope: copies into the inputs of a CUDA graph"
_NOT_IN_RANGES = re.compile(r"[^\w.:<>()+,/ -]", re.ASCII)  # Kineto gives up a name with other characters


def range_name(index: int, kernel: str) -> str:
    """What a call is called in a profiler's trace."""
    if not kernel.isidentifier() or not kernel.isascii():
        kernel = _NOT_IN_RANGES.sub("?", kernel)
    return f"{RANGE_PREFIX}{index} {kernel[:200]}"


_BITS = re.compile(r"\d+")


def item_size(dtype: str) -> int:
    """Bytes of one element: 4 for "float32", 1 for "bool"."""
    bits = _BITS.search(dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


DTYPE_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu", "float4_e2m1fn_x2": "f4e2m1fnx2",
    "complex32": "c32", "complex64": "c64", "complex128": "c128",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "b8",
}  # fmt: skip
