"""A launch on its way from a probe to the recordings: the place, the live arguments, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import Any, Protocol

import torch

from kernelscope.events import Arg, CompactCall, Finding, GraphCall, Phase, Site, SteadySite, TensorSpec
from kernelscope.stages.records import Record

from .describe import plain
from .storages import Storage

_READINGS: dict[object, int] = {}


@lru_cache(maxsize=16384)
def reading_number(spec: TensorSpec) -> int:
    """The same for specs of the same `reading`."""
    return _READINGS.setdefault(spec.reading, len(_READINGS))


class LaunchPoint:
    """A site as a probe knows it: what a launch there needs in order to be recorded quickly."""

    __slots__ = (
        "cuda_index",
        "is_leaf",
        "is_opaque",
        "is_past",
        "is_pending",
        "is_static",
        "is_wrappers",
        "outputs",
        "readings",
        "return_names",
        "returns",
        "scalars",
        "seal",
        "sealed",
        "site",
        "steady",
        "tensors",
        "uninitialised_returns",
        "written",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        *,
        is_static: bool = True,
        is_leaf: bool = False,
        is_opaque: bool = False,
        is_pending: bool = False,
        is_wrappers: bool = False,
        is_past: bool = False,
        returns: bool = False,
        seal: Callable[[Site, Launch], Site] | None = None,
        return_names: tuple[str, ...] = (),
        uninitialised_returns: Callable[[Launch], Container[str]] | None = None,
    ) -> None:
        self.site = site
        self.is_static = is_static  # every call here has the same shapes, also of what it returns
        self.is_leaf = is_leaf  # what it runs inside is part of it (not so for a custom operator)
        self.is_opaque = is_opaque  # the user's own code: what it declares to write may not be all
        self.is_pending = is_pending  # an asynchronous collective: what it writes is there after its wait
        self.is_wrappers = is_wrappers  # a line of a wrapper: each execution does there what the first did
        self.is_past = is_past  # it is over: its arguments are copies, told of afterwards
        self.steady: SteadySite | None = None  # from the first launch on, if all launches here are alike
        self.returns = returns  # its outputs are new tensors, known only afterwards
        self.seal = seal  # completes the site after its first launch (an autotuned config)
        self.return_names = return_names
        self.uninitialised_returns = (
            uninitialised_returns  # names of what it returns without having written it
        )
        self.sealed: dict[tuple[Arg, ...], Site] = {}  # by what was returned
        self.tensors = tuple(
            i for i, a in enumerate(site.args) if a.tensor is not None and not a.tensor.unread
        )
        self.readings = tuple(reading_number(site.args[i].tensor) for i in self.tensors)
        self.written = frozenset(i for i in self.tensors if site.args[i].role in ("out", "inout"))
        self.outputs = tuple((i, place) for place, i in enumerate(self.tensors) if i in self.written)
        self.scalars = tuple(i for i, a in enumerate(site.args) if a.varies)
        kind, _, number = site.device.partition(":")
        # What is over is on no stream any more.
        self.cuda_index = int(number or 0) if kind == "cuda" and not is_past else -1


class Launch:
    """One launch while it happens: its point, and the live arguments."""

    __slots__ = (
        "args",
        "calls",
        "captured",
        "epochs",
        "error",
        "flat",
        "func",
        "graph_call",
        "is_tracked",
        "kwargs",
        "offsets",
        "outer",
        "phase",
        "point",
        "result",
        "returned",
        "site",
        "start_ns",
        "storage_ids",
        "storages",
        "stream",
        "uninitialised",
    )  # fmt: skip

    point: LaunchPoint
    site: Site  # the point's, completed once the launch is over
    flat: Any  # argument values in the order of the site's args
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_tracked: bool  # whether its storages are known
    storages: list[Storage]  # of the point's tensors, in their order
    storage_ids: tuple[int, ...]  # theirs
    epochs: tuple[int, ...]  # theirs, before the launch
    offsets: tuple[int, ...]  # of the point's tensors
    uninitialised: tuple[int, ...]  # written arguments whose prior contents were uninitialised
    result: Any
    returned: list[torch.Tensor]
    stream: int
    phase: Phase
    graph_call: int
    start_ns: int
    captured: Capture | None  # the CUDA graph that is being captured: the launch executes at its replays
    outer: Launch | None  # the launch that this one happens inside of
    error: BaseException | None
    calls: dict[Listener, Any]  # what each recording made of it


class Template:
    """A launch seen while a CUDA graph was being captured: it executes at each replay."""

    __slots__ = ("calls", "offsets", "phase", "scalars", "site", "storages", "uninitialised", "written")

    def __init__(self, launch: Launch) -> None:
        point, flat = launch.point, launch.flat
        self.site = launch.site
        self.phase = launch.phase
        self.scalars = tuple(plain(flat[i]) for i in point.scalars)
        self.calls = launch.calls
        self.uninitialised = launch.uninitialised
        self.storages = launch.storages
        self.written = [launch.storages[place] for _, place in point.outputs]
        self.written += launch.storages[len(point.tensors) :]
        self.offsets = launch.offsets + tuple(int(t.storage_offset()) for t in launch.returned)


class Capture:
    """One CUDA graph: the launches of its capture, and what each recording keeps for its replays."""

    def __init__(self) -> None:
        self.templates: list[Template] = []
        self.kept: dict[Listener, Any] = {}  # each a Kept
        self.left: list[Any] = []  # memory of those that have closed
        self.replays = 0

    def leave(self, listener: Listener) -> None:
        """It has closed: only the memory stays that the captured kernels write to."""
        kept = self.kept.pop(listener, None)
        if kept is not None:
            self.left.append(kept.memory)
        for template in self.templates:
            template.calls.pop(listener, None)


class Kept(Protocol):
    """What a recording keeps for a CUDA graph, as long as the graph lives."""

    def begin(self) -> None:
        """First thing in the capture."""

    @property
    def memory(self) -> Any:
        """What the captured kernels write to, also when nobody listens any more."""

    @property
    def nbytes(self) -> int: ...


class GraphReadings:
    """What one execution of a graph fingerprinted, so that the next can do the same without looking."""

    def __init__(self) -> None:
        self.tensors: list[TensorSpec] = []  # by their number
        self.before: dict[int, list[tuple[int, int]]] = {}  # by site: argument, number of the tensor
        self.after: dict[int, list[tuple[int, int]]] = {}
        self.steady_sites: dict[int, SteadySite] = {}  # by site, with numbers for slots
        # Views of what had been read before, which one pass can read too: the number of that, by their own.
        self.views: dict[int, int] = {}
        self.swapped: dict[int, int] = {}  # those of them that are read so, the other way round


class GraphPlan(Protocol):
    """Fingerprints one execution after another."""

    @property
    def flushes(self) -> Sequence[Callable[..., None]]: ...

    def begin(self, graph_call: int) -> Any:
        """What the flushes of this execution are given."""

    def ended(self, execution: Any, *, broken_off: bool) -> None:
        """All of its flushes have been called; or it raised, and some never will be."""


class Planner(Protocol):
    """A recording whose fingerprints can be planned."""

    @property
    def plans_lazily(self) -> bool:
        """Whether what a launch leaves may be looked at later, as long as it is still there."""

    def readings(self, graph_call: int, launches: int) -> GraphReadings | None:
        """What that execution, which has just ended, fingerprinted; None if the next may differ."""

    def plan(self, readings: GraphReadings, flushes: Sequence[Sequence[int]]) -> GraphPlan | None: ...


class Listener(Protocol):
    """What a recording is to the bus."""

    def before(self, launch: Launch) -> Any: ...
    def after(self, launch: Launch, call: Any) -> None: ...
    def capturing(self) -> Kept | None:
        """A CUDA graph is about to be captured."""
        return None

    def replayed(
        self, capture: Capture, epochs: Sequence[tuple[int, ...]], stream: int, graph_call: int
    ) -> None:
        """Each launch of a CUDA graph has been enqueued once more; `epochs` are what each found."""

    def graph_call(self, graph_call: GraphCall, inputs: Sequence[Any]) -> None: ...

    @property
    def accepts_compact(self) -> bool:
        """Whether a note is enough of a steady launch."""
        return False

    @property
    def wants_values(self) -> bool:
        """Whether it looks into tensors, and not only at their shapes."""
        return False

    @property
    def planner(self) -> Planner | None:
        """Itself, if it wants hashes that can be planned."""
        return None

    @property
    def notes_have_ends(self) -> bool:
        """Whether it wants to know when a noted launch is over."""
        return False

    @property
    def note(self) -> Callable[[CompactCall], Any]:
        """Takes one, quickly; what it returns, if anything, is called after the launch."""
        return lambda entry: None

    def note_failed(self, graph_call: int, line: int, error: BaseException) -> None:
        return

    def mark(self, kind: str, text: str) -> None:
        return

    def finding(self, finding: Finding) -> None: ...
    def compiled(self, record: Record) -> None:
        return

    def step(self) -> None:
        return


class Bystander(Protocol):
    """Hears of operators that launch nothing: views, allocations, fake tensors, subclasses unwrapping."""

    def passing(self, what: str, func: Any, args: Any, kwargs: Any) -> Callable[[Any], None] | None:
        """Called before; what it returns is called with the result."""

    def unwrapping(self, func: Any, types: Any, args: Any, kwargs: Any) -> None: ...
