"""One recorded call as its users see it: a lazy view of a call and its site."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelscope.events import Arg, Call, Frame, Graph, Role, TensorSpec

if TYPE_CHECKING:
    from kernelscope.fingerprint.stats import Stats
    from kernelscope.stages.records import Provenance

    from .run import Run


class KernelCall:
    """A launch: its kernel, its arguments with names and roles, and what is known of their values."""

    __slots__ = ("_call", "_run")

    def __init__(self, run: Run, call: Call) -> None:
        self._run = run
        self._call = call

    @property
    def recorded(self) -> Call:
        """The record that this is a view of."""
        return self._call

    def value(self, arg: str, moment: str = "") -> Any:
        """A saved tensor (values="save") as a numpy array: after the launch, unless told "before"."""
        from kernelscope.store.saved_values import value_of

        return value_of(self, arg, moment).numpy()

    # -- the kernel ------------------------------------------------------------------------------------

    @property
    def kernel_name(self) -> str:
        return self._call.site.kernel.name

    @property
    def kind(self) -> str:
        return self._call.site.kernel.kind

    @property
    def producer(self) -> str:
        return "replay" if self._call.replay >= 0 else self._call.site.kernel.producer

    @property
    def source(self) -> str:
        return self._call.site.kernel.source

    @property
    def grid(self) -> tuple[int, ...] | None:
        return self._call.site.grid

    @property
    def config(self) -> dict[str, Any]:
        return self._call.site.config

    # -- the launch ------------------------------------------------------------------------------------

    @property
    def index(self) -> int:
        return self._call.index

    @property
    def parent(self) -> int | None:
        """Index of the call that made this one, such as a custom operator that runs a Triton kernel."""
        place = self._run.place_of(self._call.parent)
        return place if place >= 0 else None

    @property
    def step(self) -> int:
        return self._call.step

    @property
    def phase(self) -> str:
        return self._call.phase

    @property
    def stream(self) -> int:
        return self._call.stream

    @property
    def thread(self) -> int:
        return self._call.thread

    @property
    def device(self) -> str:
        return self._call.site.device

    @property
    def graph(self) -> Graph | None:
        return self._run.graph_of(self._call.graph_call)

    @property
    def graph_call(self) -> int | None:
        """Which execution of the graph: calls of one execution share it."""
        return self._call.graph_call if self._call.graph_call >= 0 else None

    @property
    def time(self) -> float | None:
        """Seconds that the kernel ran, where that was measured."""
        return self._call.duration_ns / 1e9 if self._call.duration_ns >= 0 else None

    @property
    def replay(self) -> int | None:
        """Which replay of a CUDA graph executed it; None when it was launched from Python."""
        return self._call.replay if self._call.replay >= 0 else None

    @property
    def error(self) -> str:
        return self._call.error

    @property
    def origin(self) -> Frame | None:
        """The user's line of code."""
        return self._call.site.origin[0] if self._call.site.origin else None

    @property
    def provenance(self) -> Provenance | None:
        """The FX nodes that it computes and their lines, of a run with stages."""
        graph = self._run.stages_of(self.graph)
        site = self._call.site
        return None if graph is None else graph.provenance_at(site.line, site.kernel.name)

    @property
    def stack(self) -> tuple[Frame, ...]:
        return self._call.site.origin

    @property
    def call_depth(self) -> int:
        """How deep DebugMode's listing indents it."""
        return self._call.depth

    @property
    def op(self) -> Any:
        """The operator that was called, where DebugMode recorded one."""
        return self._run.operators.get(self._call.key)

    @property
    def stack_trace(self) -> str:
        """The user's lines as Python prints a stack, outermost first."""
        noted, _ = self._run.stack_traces.get(self._call.key, ("", None))
        return noted or "".join(_trace_line(frame) for frame in reversed(self.stack))

    @property
    def fwd_stack_trace(self) -> str | None:
        """Of the forward operator, for a call in the backward pass."""
        _, noted = self._run.stack_traces.get(self._call.key, ("", None))
        is_compiled_backward = self.graph is not None and self.phase == "backward"
        return noted or (self.stack_trace if is_compiled_backward else None)

    @property
    def wrapper_line(self) -> tuple[str, int]:
        return self._call.site.file, self._call.site.line

    # -- arguments -------------------------------------------------------------------------------------

    @property
    def arguments(self) -> tuple[Arg, ...]:
        return self._call.site.args

    @property
    def arg_names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self._call.site.args)

    @property
    def wrapper_names(self) -> tuple[str, ...]:
        """What the calling code named the arguments: buf3, arg0_1."""
        return tuple(a.wrapper_name for a in self._call.site.args)

    @property
    def args(self) -> tuple[Any, ...]:
        """Values: tensors where originals are stored, otherwise their descriptions; numbers as passed."""
        originals = self._run.originals.get(self._call.key)
        if originals is not None:
            return originals
        scalars = iter(self._call.scalars)
        return tuple(_value(a, scalars) for a in self._call.site.args)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Settings that were passed besides the arguments (seed 001 keeps them apart)."""
        return self._run.kwargs.get(self._call.key, {})

    @property
    def roles(self) -> tuple[Role, ...]:
        """What each argument was to this launch: an "inout" over uninitialised memory is an output."""
        uninitialised = set(self._call.uninitialised)
        return tuple(
            "out" if a.role == "inout" and i in uninitialised else a.role
            for i, a in enumerate(self._call.site.args)
        )

    @property
    def uninitialised(self) -> tuple[int, ...]:
        """Indices of written arguments whose memory held nothing before."""
        return self._call.uninitialised

    @property
    def storages(self) -> dict[int, tuple[int, int, int]]:
        """Argument index -> (storage, how often it had been written, offset in elements)."""
        call = self._call
        indices = [i for i, a in enumerate(call.site.args) if a.tensor is not None and not a.tensor.unread]
        return dict(zip(indices, zip(call.storages, call.epochs, call.offsets, strict=False), strict=False))

    # -- values ----------------------------------------------------------------------------------------

    @property
    def pre_hashes(self) -> dict[int, Any]:
        """Hashes before the launch: inputs, and written arguments that held something."""
        return self._hashes(self._call.pre)

    @property
    def post_hashes(self) -> dict[int, Any]:
        return self._hashes(self._call.post)

    @property
    def poison_hashes(self) -> dict[int, Any]:
        """With verify="poison": the hashes of outputs after they were filled with a sentinel."""
        return self._hashes(self._call.poison)

    @property
    def pre_stats(self) -> dict[int, Stats]:
        """Statistics before the launch, at level "stats"; a dtype without numbers has none."""
        return self._stats(self._call.pre)

    @property
    def post_stats(self) -> dict[int, Stats]:
        return self._stats(self._call.post)

    def _stats(self, slots: dict[int, int] | None) -> dict[int, Stats]:
        fingerprinter = self._call.fingerprinter
        if not slots or not fingerprinter.has_stats:
            return {}
        found = {i: fingerprinter.stats(slots[i]) for i in sorted(slots)}
        return {i: stats for i, stats in found.items() if stats is not None}

    def _hashes(self, slots: dict[int, int] | None) -> dict[int, Any]:
        if not slots:
            return {}
        return {i: self._call.fingerprinter.read(slots[i]) for i in sorted(slots)}

    @property
    def modified_args(self) -> set[int]:
        """Outputs: what was declared to be written, and what the hashes show to be."""
        declared = {i for i, a in enumerate(self._call.site.args) if a.role in ("out", "inout")}
        return declared | self.changed_args

    @property
    def changed_args(self) -> set[int]:
        """Arguments whose hash after the launch differs from the one before."""
        pre, post = self.pre_hashes, self.post_hashes
        return {i for i in pre.keys() & post.keys() if not same_hash(pre[i], post[i])}

    @property
    def log(self) -> dict[str, Any]:
        logged = dict(self._run.logs.get(self._call.key, {}))
        if self._call.post is None:
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
        return self._run.records.get(self._call.key, {})

    # -- text ------------------------------------------------------------------------------------------

    def render(self, attributes: Sequence[str] = ()) -> str:
        """The block of seed 001: grid, one line an argument, outputs marked."""
        modified = self.modified_args
        lines = [
            f"    {'[OUT] ' if i in modified else ''}{name}={self._shown(i, attributes)},"
            for i, name in enumerate(self.arg_names)
        ]
        if lines:
            lines[-1] = lines[-1].removesuffix(",")
        log = {k: v for k, v in self.log.items() if k in ("outputs", "pre_hashes", "post_hashes")}
        grid = f"[grid={self.grid}]" if self.grid is not None else ""
        head = f"[{self.kind.capitalize()}] {self.kernel_name}{grid}("
        return "\n".join([head, *lines, ")" + (f"  # {log}" if log else "")])

    def line(self, attributes: Sequence[str] = (), *, show_inputs: bool = False) -> str:
        """The line of seed 000: name, arguments, output hashes."""
        shown = ("hash", "input_hash") if show_inputs else ("hash",)
        own = {
            k: v
            for k, v in self.log.items()
            if k not in ("hash", "input_hash", "outputs", "pre_hashes", "post_hashes")
        }
        log = {k: v for k, v in self.log.items() if k in shown} | own
        return self._call_text(attributes) + (f"  # {log}" if log else "")

    def _call_text(self, attributes: Sequence[str]) -> str:
        args = ", ".join(f"{n}={self._shown(i, attributes)}" for i, n in enumerate(self.arg_names))
        return f"[{self.kind}] {self.kernel_name}({args})"

    def _shown(self, i: int, attributes: Sequence[str]) -> str:
        tensor = self._call.site.args[i].tensor
        if tensor is None:
            return str(self.args[i])
        label = self._run.labels.get((self._call.key, i))
        return tensor.short if label is None else label.text(attributes)

    def __str__(self) -> str:
        return self.line()

    def _repr_html_(self) -> str:
        """For notebooks."""
        from .html import call_html

        return call_html(self)

    def __repr__(self) -> str:
        where = f" at {self.origin}" if self.origin else ""
        return f"<KernelCall {self.index} [{self.kind}] {self.kernel_name}{where}>"


def _value(arg: Arg, scalars: Any) -> Any:
    tensor: TensorSpec | None = arg.tensor
    if tensor is not None:
        return tensor
    return next(scalars, None) if arg.varies else arg.value


def _trace_line(frame: Frame) -> str:
    code = linecache.getline(frame.file, frame.line).strip()
    return f'  File "{frame.file}", line {frame.line}, in {frame.function}\n' + (
        f"    {code}\n" if code else ""
    )


def same_hash(a: Any, b: Any) -> bool:
    """NaN equals NaN, also inside a list of hashes."""
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same_hash(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) or (a != a and b != b)
