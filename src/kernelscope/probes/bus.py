"""The one way from probes to recordings: what a launch is, and who hears of it.

Probes are installed once per process and emit here; each open recording listens. What is a fact of the
process (storages, the current graph, autotuning going on) is kept here; what a recording wants to know
about it is the recording's own.
"""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

from ..events import Arg, Finding, Graph, GraphCall, Kernel, Phase, Site
from .describe import describe, plain, returned_tensors
from .storages import Storage, Storages

NOT_WRITTEN = "not written"

_Result = TypeVar("_Result")


class LaunchPoint:
    """A site as a probe knows it: what a launch there needs in order to be recorded quickly."""

    __slots__ = (
        "is_leaf", "is_static", "return_names", "returns", "scalars", "seal", "sealed", "site", "tensors",
        "unwritten_returns", "written",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        *,
        is_static: bool = True,
        is_leaf: bool = False,
        returns: bool = False,
        seal: Callable[[Site, Launch], Site] | None = None,
        return_names: tuple[str, ...] = (),
        unwritten_returns: Callable[[Launch], frozenset[str]] | None = None,
    ) -> None:
        self.site = site
        self.is_static = is_static  # every call here has the same shapes, also of what it returns
        self.is_leaf = is_leaf  # what it runs inside is part of it (not so for a custom operator)
        self.returns = returns  # its outputs are new tensors, known only afterwards
        self.seal = seal  # completes the site after its first launch (an autotuned config)
        self.return_names = return_names
        self.unwritten_returns = unwritten_returns  # names of what it returns without having written it
        self.sealed: dict[tuple[Arg, ...], Site] = {}  # by what was returned
        self.tensors = tuple(
            i for i, a in enumerate(site.args) if a.tensor is not None and not a.tensor.unread
        )
        self.written = frozenset(i for i in self.tensors if site.args[i].role in ("out", "inout"))
        self.scalars = tuple(i for i, a in enumerate(site.args) if a.tensor is None and a.value is None)


class Launch:
    """One launch while it happens: its point, and the live arguments."""

    __slots__ = (
        "args", "calls", "captured", "dead", "error", "flat", "func", "graph_call", "kwargs", "outer",
        "phase", "point", "result", "returned", "site", "start_ns", "storages", "stream",
    )  # fmt: skip

    point: LaunchPoint
    site: Site  # the point's, completed once the launch is over
    flat: Any  # argument values in the order of the site's args
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    storages: list[Storage]  # of the point's tensors, in their order
    dead: tuple[int, ...]  # written arguments whose prior contents were uninitialised
    result: Any
    returned: list[torch.Tensor]
    stream: int
    phase: Phase
    graph_call: int
    start_ns: int
    captured: bool
    outer: Launch | None  # the launch that this one happens inside of
    error: BaseException | None
    calls: dict[Listener, Any]  # what each recording made of it


class Template:
    """A launch seen while a CUDA graph was being captured: it executes at each replay."""

    __slots__ = ("offsets", "phase", "scalars", "site", "storages", "written")

    def __init__(self, launch: Launch) -> None:
        point, flat = launch.point, launch.flat
        self.site = launch.site
        self.phase = launch.phase
        self.scalars = tuple(plain(flat[i]) for i in point.scalars)
        self.storages = launch.storages
        self.written = [s for i, s in zip(point.tensors, launch.storages, strict=False) if i in point.written]
        self.written += launch.storages[len(point.tensors) :]
        tensors = [flat[i] for i in point.tensors] + launch.returned
        self.offsets = tuple(int(t.storage_offset()) for t in tensors)


class Listener(Protocol):
    """What a recording is to the bus."""

    def before(self, launch: Launch) -> Any: ...
    def after(self, launch: Launch, call: Any) -> None: ...
    def replayed(self, template: Template, replay: int, stream: int, graph_call: int) -> None: ...
    def graph_call(self, graph_call: GraphCall) -> None: ...
    def mark(self, kind: str, text: str) -> None: ...
    def finding(self, finding: Finding) -> None: ...
    def step(self) -> None: ...


class _ThreadState(threading.local):
    muted = 0  # the recorder's own work, autotuning, compilation
    graph_call = -1
    in_graph = 0
    backward = False
    optimizer = 0
    launch: Launch | None = None


class Bus:
    """Fans what probes see out to the open recordings."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.storages = Storages()
        self.here = _ThreadState()
        self.capture: list[Template] | None = None  # of the CUDA graph that is being captured
        self._graph_calls = itertools.count()
        self.site_ids = itertools.count()
        self._kernels: dict[tuple[str, str, str], Kernel] = {}
        self._kernel_ids = itertools.count()
        self._lock = threading.Lock()

    def attach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = (*self.listeners, listener)

    def detach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            if not self.listeners:
                self.storages.clear()
                self._kernels = {}

    def renew(self) -> None:
        """Probes are about to be installed: what the threads are in the middle of was not seen."""
        self.here = _ThreadState()

    def forget(self) -> None:
        """In a forked child: nobody listens, and the weak references are its own copies."""
        self.listeners = ()
        self.storages = Storages()
        self._lock = threading.Lock()
        self.renew()

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Nothing that happens inside, on this thread, is the program's own."""
        here = self.here
        here.muted += 1
        try:
            yield
        finally:
            here.muted -= 1

    def kernel(self, name: str, kind: str, producer: str, source: str = "", source_hash: str = "") -> Kernel:
        key, kernels = (name, kind, source_hash), self._kernels
        known = kernels.get(key)
        if known is None:
            made = Kernel(next(self._kernel_ids), name, kind, producer, source, source_hash)
            known = kernels.setdefault(key, made)  # another thread may have been faster
        return known

    def graph_call(self, graph: Graph) -> int:
        """A compiled graph starts to execute."""
        index = next(self._graph_calls)
        for listener in self.listeners:
            listener.graph_call(GraphCall(index, graph))
        return index

    def replayed(self, templates: list[Template], replay: int) -> None:
        """A CUDA graph was replayed: each launch of its capture has executed once more."""
        stream = torch.cuda.current_stream().cuda_stream
        for template in templates:
            for listener in self.listeners:
                listener.replayed(template, replay, stream, self.here.graph_call)
            for storage in template.written:
                storage.epoch += 1

    def finding(self, finding: Finding) -> None:
        for listener in self.listeners:
            listener.finding(finding)

    def mark(self, kind: str, text: str) -> None:
        for listener in self.listeners:
            listener.mark(kind, text)

    def step(self) -> None:
        for listener in self.listeners:
            listener.step()

    def phase(self) -> Phase:
        here = self.here
        if here.optimizer:
            return "optimizer"
        if here.in_graph:
            return "backward" if here.backward else "forward"
        if torch._C._current_autograd_node() is not None:
            return "backward"
        return "forward" if torch.is_grad_enabled() else "other"

    def run(
        self,
        point: LaunchPoint,
        flat: Any,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Launch, and let every recording see it before and after."""
        here = self.here
        try:
            launch = unseen(self._begin, point, flat, func, args, kwargs)
        except Exception:
            self.finding(own_fault(f"looking at the arguments of {point.site.kernel.name}"))
            return func(*args, **kwargs)
        here.launch = launch
        here.muted += point.is_leaf
        try:
            launch.result = func(*args, **kwargs)
        except BaseException as error:
            launch.error = error
            raise
        finally:
            here.muted -= point.is_leaf
            here.launch = launch.outer
            unseen(self._end, launch)
            launch.error = None  # with its traceback it would be a cycle that keeps the arguments alive
        return launch.result

    def _begin(self, point: LaunchPoint, flat: Any, func: Any, args: Any, kwargs: Any) -> Launch:
        launch = Launch()
        launch.point, launch.flat, launch.func, launch.args, launch.kwargs = point, flat, func, args, kwargs
        launch.site = point.site
        launch.result, launch.error, launch.returned = None, None, []
        launch.outer = self.here.launch
        launch.graph_call = self.here.graph_call
        launch.phase = self.phase()
        launch.start_ns = time.monotonic_ns()
        launch.stream, launch.captured = _stream(point.site.device, kwargs)
        storages = self.storages
        launch.storages = [storages.of(flat[i]) for i in point.tensors]
        launch.dead = tuple(
            i
            for i, storage in zip(point.tensors, launch.storages, strict=True)
            if storage.unwritten and not storages.is_live(flat[i], storage, reading=i not in point.written)
        )
        launch.calls = {}
        for listener in self.listeners:
            try:
                launch.calls[listener] = listener.before(launch)
            except Exception:
                listener.finding(own_fault(f"recording {point.site.kernel.name}"))
        return launch

    def _end(self, launch: Launch) -> None:
        try:
            self._complete(launch)
        except Exception:
            self.finding(own_fault(f"completing {launch.site.kernel.name}"))
        if launch.captured and self.capture is not None and launch.error is None:
            self.capture.append(Template(launch))
        for listener, call in launch.calls.items():
            if call is None:
                continue
            try:
                listener.after(launch, call)
            except Exception:
                listener.finding(own_fault(f"recording {launch.site.kernel.name}"))

    def _complete(self, launch: Launch) -> None:
        point = launch.point
        for i, storage in zip(point.tensors, launch.storages, strict=True):
            if i in point.written:
                self.storages.wrote(launch.flat[i], storage)
        if launch.error is not None:
            return
        seal, point.seal = point.seal, None
        if seal is not None:
            point.site = seal(point.site, launch)
        launch.site = self._with_returns(launch) if point.returns else point.site

    def _with_returns(self, launch: Launch) -> Site:
        point = launch.point
        given = {id(value) for value in launch.flat}
        named = [(n, t) for n, t in returned_tensors(launch.result, point.return_names) if id(t) not in given]
        launch.returned = [tensor for _, tensor in named]
        site = self._site_returning(launch, named)
        for arg, tensor in zip(site.args[len(point.site.args) :], launch.returned, strict=True):
            if arg.tensor is None or not arg.tensor.unread:
                storage = self.storages.of(tensor)
                storage.epoch += 1
                launch.storages.append(storage)
            elif arg.tensor.unread == NOT_WRITTEN:
                self.storages.born(tensor)
        return site

    def _site_returning(self, launch: Launch, named: list[tuple[str, torch.Tensor]]) -> Site:
        point = launch.point
        if point.is_static and point.sealed:
            return next(iter(point.sealed.values()))
        unwritten = point.unwritten_returns(launch) if point.unwritten_returns else ()
        returns = tuple(
            Arg(name, "out", describe(t, unread=NOT_WRITTEN if name in unwritten else ""), returned=True)
            for name, t in named
        )
        if returns not in point.sealed:
            point.sealed[returns] = point.site.with_returns(next(self.site_ids), returns)
        return point.sealed[returns]


def _stream(device: str, kwargs: dict[str, Any]) -> tuple[int, bool]:
    if not device.startswith("cuda"):
        return 0, False
    stream = kwargs.get("stream")
    if not isinstance(stream, int):
        stream = torch._C._cuda_getCurrentRawStream(int(device.partition(":")[2] or 0))
    return stream, torch._C._cuda_isCurrentStreamCapturing()


def unseen(do: Callable[..., _Result], *args: Any) -> _Result:
    """Do something of our own where the user's torch-function modes do not see what it asks of tensors."""
    if not torch._C._len_torch_function_stack():
        return do(*args)
    with torch._C.DisableTorchFunction():
        return do(*args)


def own_fault(where: str) -> Finding:
    """The recorder's own mistake: said, but never the user's problem."""
    trace = traceback.format_exc(limit=-3).strip()
    return Finding("recorder-error", f"kernelscope failed while {where}; the program went on.\n{trace}")


BUS = Bus()
