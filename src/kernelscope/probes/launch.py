"""A launch on its way from a probe to the recordings: its site, and the live arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from kernelscope.events import Arg, CapturedGraph, Phase, Site, SteadySite, TensorSpec

from .describe import plain
from .storages import Storage

_READINGS: dict[object, int] = {}
_CAPTURES = itertools.count()


@lru_cache(maxsize=16384)
def reading_number(spec: TensorSpec) -> int:
    """The same for specs of the same `reading`."""
    return _READINGS.setdefault(spec.reading, len(_READINGS))


@dataclass(slots=True, eq=False, kw_only=True)
class LaunchPoint:
    """A site as a probe knows it: what a launch there needs in order to be recorded quickly."""

    site: Site = field(kw_only=False)
    is_static: bool = True  # every call here has the same shapes, also of what it returns
    is_leaf: bool = False  # what it runs inside is part of it (not so for a custom operator)
    is_opaque: bool = False  # the user's own code: what it declares to write may not be all
    is_pending: bool = False  # an asynchronous collective: what it writes is there after its wait
    is_over: Callable[[Launch], bool] | None = None  # of a collective in place, which ends after it returned
    is_wrappers: bool = False  # a line of a wrapper: each graph call does there what the first did
    is_past: bool = False  # it is over: its arguments are copies, reported afterwards
    returns: bool = False  # its outputs are new tensors, known only afterwards
    seal: Callable[[Site, Launch], Site] | None = None  # completes the site after its first launch
    return_names: tuple[str, ...] = ()
    # Names of what it returns without having written it.
    uninitialised_returns: Callable[[Launch], Container[str]] | None = None

    steady: SteadySite | None = field(default=None, init=False)  # if all launches here are alike
    sealed: dict[tuple[Arg, ...], Site] = field(default_factory=dict, init=False)  # by what was returned
    tensors: tuple[int, ...] = field(init=False)  # arguments whose values can be read
    readings: tuple[int, ...] = field(init=False)
    written: frozenset[int] = field(init=False)
    outputs: tuple[tuple[int, int], ...] = field(init=False)  # argument, and its position in `tensors`
    scalars: tuple[int, ...] = field(init=False)
    cuda_index: int = field(init=False)  # -1 where nothing is enqueued on a GPU

    def __post_init__(self) -> None:
        args = self.site.args
        specs = {i: a.tensor for i, a in enumerate(args) if a.tensor is not None and not a.tensor.unread}
        self.tensors = tuple(specs)
        self.readings = tuple(map(reading_number, specs.values()))
        self.written = frozenset(i for i in specs if args[i].role in ("out", "inout"))
        self.outputs = tuple((i, position) for position, i in enumerate(specs) if i in self.written)
        self.scalars = tuple(i for i, a in enumerate(args) if a.varies)
        kind, _, number = self.site.device.partition(":")
        # What is over is not on a stream any more.
        self.cuda_index = int(number or 0) if kind == "cuda" and not self.is_past else -1


@dataclass(slots=True, init=False, eq=False, repr=False)  # made empty: the bus fills it in, in one place
class Launch:
    """One launch while it happens: its point, and the live arguments."""

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
    calls: dict[Any, Any]  # by listener: what it recorded


class Template:
    """A launch seen while a CUDA graph was being captured: it executes at each replay."""

    __slots__ = (
        "calls", "epochs", "offsets", "phase", "scalars", "site", "storages", "uninitialised", "written",
    )  # fmt: skip

    def __init__(self, launch: Launch) -> None:
        point, flat = launch.point, launch.flat
        self.site = launch.site
        self.phase = launch.phase
        self.scalars = tuple(plain(flat[i]) for i in point.scalars)
        self.calls = launch.calls
        self.uninitialised = launch.uninitialised
        self.storages = launch.storages
        self.written = [launch.storages[position] for _, position in point.outputs]
        made = launch.storages[len(point.tensors) :]
        self.written += made
        self.epochs = launch.epochs + tuple(storage.epoch - 1 for storage in made)
        self.offsets = launch.offsets + tuple(int(t.storage_offset()) for t in launch.returned)

    @classmethod
    def of_node(cls, site: Site, phase: Phase) -> Template:
        """Of a node of a graph: what it reads and writes is not known."""
        made = cls.__new__(cls)
        made.site, made.phase, made.scalars, made.calls = site, phase, (), {}
        made.uninitialised = made.epochs = made.offsets = ()
        made.storages, made.written = [], []
        return made


class Capture:
    """One CUDA graph: the launches of its capture, and what each recording keeps for its replays."""

    def __init__(self) -> None:
        self.number = next(_CAPTURES)
        self.templates: list[Template] = []
        self.kept: dict[Any, Any] = {}  # by listener: a Kept
        self.left: list[Any] = []  # memory of listeners that have closed
        self.graphs: dict[Any, CapturedGraph] = {}  # by listener: what it records of each replay
        self.written: list[Storage] | None = None  # memory that a replay writes to, and that outlives it
        self.replays = 0
        self.nodes = (
            0  # for the GPU, where they were read because the graph was captured before the recording
        )
        self.bodies = 0  # of conditional nodes that are being captured, one inside the other

    def leave(self, listener: object) -> None:
        """A recording has closed: only the memory stays that the captured kernels write to."""
        self.graphs.pop(listener, None)
        kept = self.kept.pop(listener, None)
        if kept is not None:
            self.left.append(kept.memory)
        for template in self.templates:
            template.calls.pop(listener, None)
