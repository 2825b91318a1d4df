"""What is known of one recorded call: a lazy view of a call and its site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kernelscope.events import Arg, Call, Frame, Graph, Role, Site
from kernelscope.stages.computed_nodes import computed_nodes
from kernelscope.text.frames import source_line

from .collectives import Collective, is_wait
from .debug_notes import CallNotes

if TYPE_CHECKING:
    from kernelscope.fingerprint.stats import Stats
    from kernelscope.stages import StagedGraph
    from kernelscope.stages.records import FxOrigin, Provenance


class RunOfCall(Protocol):
    """What a call needs of the run that it belongs to."""

    @property
    def debug_notes(self) -> Mapping[int, CallNotes]: ...
    @property
    def collectives(self) -> Mapping[int, Collective]: ...
    @property
    def calls(self) -> Sequence[Any]: ...
    def position_of(self, key: int) -> int: ...
    def graph_of(self, graph_call: int) -> Graph | None: ...
    def stages_of(self, graph: Graph | None) -> StagedGraph | None: ...
    def saved_value(self, call: CallFacts, name: str, moment: str = "") -> Any: ...


class CallFacts:
    """A launch: its kernel, its arguments with names and roles, and what is known of their values."""

    __slots__ = ("recorded", "run")

    def __init__(self, run: RunOfCall, recorded: Call) -> None:
        self.run = run
        self.recorded = recorded

    def value(self, arg: str, moment: str = "") -> Any:
        """A saved tensor (values="save") as a numpy array: after the launch, unless told "before"."""
        if moment not in ("", "before", "after"):
            raise ValueError(f"value({arg!r}, {moment!r}): the moment is 'before' or 'after'")
        return self.run.saved_value(self, arg, moment).numpy()

    # -- the kernel ------------------------------------------------------------------------------------

    @property
    def site(self) -> Site:
        return self.recorded.site

    @property
    def kernel_name(self) -> str:
        return self.site.kernel.name

    @property
    def kind(self) -> str:
        return self.site.kernel.kind

    @property
    def producer(self) -> str:
        return "replay" if self.recorded.replay >= 0 else self.site.kernel.producer

    @property
    def source(self) -> str:
        return self.site.kernel.source

    @property
    def grid(self) -> tuple[int, ...] | None:
        return self.site.grid

    @property
    def config(self) -> dict[str, Any]:
        return self.site.config

    # -- the launch ------------------------------------------------------------------------------------

    @property
    def index(self) -> int:
        return self.recorded.index

    @property
    def parent(self) -> int | None:
        """Index of the call that made this one, such as a custom operator that runs a Triton kernel."""
        position = self.run.position_of(self.recorded.parent)
        return position if position >= 0 else None

    @property
    def collective(self) -> Collective | None:
        """If it communicates with other ranks: group, number, peers. A wait has those of what it awaits."""
        is_one = bool(self.site.collective) or is_wait(self.kernel_name)
        return self.run.collectives.get(self.index) if is_one else None

    @property
    def step(self) -> int:
        return self.recorded.step

    @property
    def phase(self) -> str:
        return self.recorded.phase

    @property
    def stream(self) -> int:
        return self.recorded.stream

    @property
    def thread(self) -> int:
        return self.recorded.thread

    @property
    def device(self) -> str:
        return self.site.device

    @property
    def graph(self) -> Graph | None:
        return self.run.graph_of(self.recorded.graph_call)

    @property
    def graph_call(self) -> int | None:
        """Number of the graph call that it belongs to."""
        return self.recorded.graph_call if self.recorded.graph_call >= 0 else None

    @property
    def time(self) -> float | None:
        """Seconds that the kernel ran, where that was measured."""
        return self.recorded.duration_ns / 1e9 if self.recorded.duration_ns >= 0 else None

    @property
    def replay(self) -> int | None:
        """Which replay of a CUDA graph executed it; None when it was launched from Python."""
        return self.recorded.replay if self.recorded.replay >= 0 else None

    @property
    def error(self) -> str:
        return self.recorded.error

    @property
    def is_unwritten(self) -> bool:
        """Whether a crash has left it in the flight recorder alone: without values, and maybe executing."""
        return self.recorded.is_unwritten

    @property
    def origin(self) -> Frame | None:
        """The user's line of code."""
        return self.site.origin[0] if self.site.origin else None

    @property
    def provenance(self) -> Provenance | None:
        """The FX nodes that it computes and their lines, of a run with stages."""
        graph = self.run.stages_of(self.graph)
        return None if graph is None else graph.provenance_at(self.site.line, self.kernel_name)

    @property
    def computed(self) -> tuple[FxOrigin, ...]:
        """The nodes that it computes, without those whose values it only reads."""
        graph, launch = self.run.stages_of(self.graph), self.provenance
        if graph is None or launch is None:
            return ()
        roles = self.roles
        read = {a.wrapper_name for i, a in enumerate(self.arguments) if roles[i] != "out"}
        return computed_nodes(graph, launch, read)

    @property
    def stack(self) -> tuple[Frame, ...]:
        return self.site.origin

    @property
    def call_depth(self) -> int:
        """How deep DebugMode's listing indents it."""
        return self.recorded.depth

    @property
    def op(self) -> Any:
        """The operator that was called, where DebugMode recorded one."""
        return self._notes.func

    @property
    def stack_trace(self) -> str:
        """The user's lines as Python prints a stack, outermost first."""
        return self._notes.stack_trace or "".join(_trace_line(frame) for frame in reversed(self.stack))

    @property
    def fwd_stack_trace(self) -> str | None:
        """Of the forward operator, for a call in the backward pass."""
        is_compiled_backward = self.graph is not None and self.phase == "backward"
        return self._notes.fwd_stack_trace or (self.stack_trace if is_compiled_backward else None)

    @property
    def wrapper_line(self) -> tuple[str, int]:
        return self.site.file, self.site.line

    @property
    def _notes(self) -> CallNotes:
        return self.run.debug_notes.get(self.recorded.key) or CallNotes()

    # -- arguments -------------------------------------------------------------------------------------

    @property
    def arguments(self) -> tuple[Arg, ...]:
        return self.site.args

    @property
    def arg_names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.site.args)

    @property
    def wrapper_names(self) -> tuple[str, ...]:
        """What the calling code named the arguments: buf3, arg0_1."""
        return tuple(a.wrapper_name for a in self.site.args)

    @property
    def args(self) -> tuple[Any, ...]:
        """Values: tensors where originals are stored, otherwise their descriptions; numbers as passed."""
        originals = self._notes.originals
        if originals is not None:
            return originals
        scalars = iter(self.recorded.scalars)
        return tuple(_value(a, scalars) for a in self.site.args)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Settings that were passed besides the arguments (seed 001 keeps them apart)."""
        return self._notes.kwargs

    @property
    def roles(self) -> tuple[Role, ...]:
        """What each argument was to this launch: an "inout" over uninitialised memory is an output."""
        uninitialised = set(self.recorded.uninitialised)
        return tuple(
            "out" if a.role == "inout" and i in uninitialised else a.role
            for i, a in enumerate(self.site.args)
        )

    @property
    def uninitialised(self) -> tuple[int, ...]:
        """Indices of arguments whose memory had not been written since it was allocated."""
        return self.recorded.uninitialised

    @property
    def storages(self) -> dict[int, tuple[int, int, int]]:
        """Argument index -> (storage, its epoch, offset in elements)."""
        call = self.recorded
        places = zip(call.storages, call.epochs, call.offsets, strict=False)
        return dict(zip(call.site.readable, places, strict=False))

    @property
    def begun_storages(self) -> dict[int, tuple[int, int]]:
        """What an asynchronous collective returned before it was written: argument -> (storage, offset)."""
        call = self.recorded
        tensors = [(i, a.tensor) for i, a in enumerate(call.site.args) if a.tensor is not None]
        first = sum(not tensor.unread for _, tensor in tensors)
        indices = [i for i, tensor in tensors if tensor.unread]
        places = list(zip(call.storages, call.offsets, strict=False))
        return dict(zip(indices, places[first:], strict=False))

    # -- values ----------------------------------------------------------------------------------------

    @property
    def pre_hashes(self) -> dict[int, Any]:
        """Hashes before the launch: inputs, and written arguments that held something."""
        return self._hashes(self.recorded.pre)

    @property
    def post_hashes(self) -> dict[int, Any]:
        return self._hashes(self.recorded.post)

    @property
    def poison_hashes(self) -> dict[int, Any]:
        """With verify="poison": the hashes of outputs after they were filled with a sentinel."""
        return self._hashes(self.recorded.poison)

    @property
    def pre_stats(self) -> dict[int, Stats]:
        """Statistics before the launch, at level "stats"; a dtype without numbers has none."""
        return self._stats(self.recorded.pre)

    @property
    def post_stats(self) -> dict[int, Stats]:
        return self._stats(self.recorded.post)

    def _stats(self, slots: dict[int, int] | None) -> dict[int, Stats]:
        fingerprinter = self.recorded.fingerprinter
        if not slots or not fingerprinter.has_stats:
            return {}
        found = {i: fingerprinter.stats(slots[i]) for i in sorted(slots)}
        return {i: stats for i, stats in found.items() if stats is not None}

    def _hashes(self, slots: dict[int, int] | None) -> dict[int, Any]:
        if not slots:
            return {}
        return {i: self.recorded.fingerprinter.read(slots[i]) for i in sorted(slots)}

    @property
    def modified_args(self) -> set[int]:
        """Outputs: what was declared to be written, and what the hashes show to be."""
        declared = {i for i, a in enumerate(self.site.args) if a.role in ("out", "inout")}
        return declared | self.changed_args

    @property
    def changed_args(self) -> set[int]:
        """Arguments whose hash after the launch differs from the one before."""
        pre, post = self.pre_hashes, self.post_hashes
        return {i for i in pre.keys() & post.keys() if not same_hash(pre[i], post[i])}

    @property
    def log(self) -> dict[str, Any]:
        logged = dict(self._notes.log)
        if self.recorded.post is None:
            return logged
        pre, post, modified = self.pre_hashes, self.post_hashes, self.modified_args
        return logged | {
            "hash": [post[i] for i in sorted(modified) if i in post],
            "input_hash": [pre[i] for i in sorted(pre)],
            "outputs": [self.arg_names[i] for i in sorted(modified)],
            "pre_hashes": pre,
            "post_hashes": post,
        }

    @property
    def record(self) -> dict[str, Any]:
        return self._notes.record


def _value(arg: Arg, scalars: Any) -> Any:
    if arg.tensor is not None:
        return arg.tensor
    return next(scalars, None) if arg.varies else arg.value


def _trace_line(frame: Frame) -> str:
    code = source_line(frame)
    return f'  File "{frame.file}", line {frame.line}, in {frame.function}\n' + (
        f"    {code}\n" if code else ""
    )


def same_hash(a: Any, b: Any) -> bool:
    """NaN equals NaN, also inside a list of hashes."""
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same_hash(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) or (a != a and b != b)
