"""The one way from probes to recordings: what a launch is, and who hears of it.

Probes are installed once per process and emit here; each open recording listens. What is a fact of the
process (storages, the current graph, autotuning going on) is kept here; what a recording wants to know
about it is the recording's own.
"""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic_ns
from typing import Any, Protocol, TypeVar

import torch

from ..events import Arg, Brief, Familiar, Finding, Graph, GraphCall, Kernel, Phase, Site
from .describe import describe, plain, returned_tensors
from .storages import Storage, Storages

NOT_WRITTEN = "not written"
_modes = torch._C._len_torch_function_stack

_Result = TypeVar("_Result")


class LaunchPoint:
    """A site as a probe knows it: what a launch there needs in order to be recorded quickly."""

    __slots__ = (
        "cuda_index", "familiar", "is_leaf", "is_opaque", "is_pending", "is_static", "is_wrappers", "outputs",
        "return_names", "returns", "scalars", "seal", "sealed", "site", "tensors", "unwritten_returns",
        "views", "written",
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
        returns: bool = False,
        seal: Callable[[Site, Launch], Site] | None = None,
        return_names: tuple[str, ...] = (),
        unwritten_returns: Callable[[Launch], Container[str]] | None = None,
    ) -> None:
        self.site = site
        self.is_static = is_static  # every call here has the same shapes, also of what it returns
        self.is_leaf = is_leaf  # what it runs inside is part of it (not so for a custom operator)
        self.is_opaque = is_opaque  # the user's own code: what it declares to write may not be all
        self.is_pending = is_pending  # an asynchronous collective: what it writes is there after its wait
        self.is_wrappers = is_wrappers  # a line of a wrapper: each execution does there what the first did
        self.familiar: Familiar | None = None  # from the first launch on, if all launches here are alike
        self.returns = returns  # its outputs are new tensors, known only afterwards
        self.seal = seal  # completes the site after its first launch (an autotuned config)
        self.return_names = return_names
        self.unwritten_returns = unwritten_returns  # names of what it returns without having written it
        self.sealed: dict[tuple[Arg, ...], Site] = {}  # by what was returned
        self.tensors = tuple(
            i for i, a in enumerate(site.args) if a.tensor is not None and not a.tensor.unread
        )
        self.views = tuple(id(site.args[i].tensor) for i in self.tensors)  # specs are interned
        self.written = frozenset(i for i in self.tensors if site.args[i].role in ("out", "inout"))
        self.outputs = tuple((i, place) for place, i in enumerate(self.tensors) if i in self.written)
        self.scalars = tuple(i for i, a in enumerate(site.args) if a.varies)
        kind, _, number = site.device.partition(":")
        self.cuda_index = int(number or 0) if kind == "cuda" else -1


class Launch:
    """One launch while it happens: its point, and the live arguments."""

    __slots__ = (
        "args", "calls", "captured", "dead", "epochs", "error", "flat", "func", "graph_call", "is_tracked",
        "kwargs", "offsets", "outer", "phase", "point", "result", "returned", "site", "start_ns",
        "storage_ids", "storages", "stream",
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
        self.written = [launch.storages[place] for _, place in point.outputs]
        self.written += launch.storages[len(point.tensors) :]
        self.offsets = launch.offsets + tuple(int(t.storage_offset()) for t in launch.returned)


class Listener(Protocol):
    """What a recording is to the bus."""

    def before(self, launch: Launch) -> Any: ...
    def after(self, launch: Launch, call: Any) -> None: ...
    def replayed(self, template: Template, replay: int, stream: int, graph_call: int) -> None: ...
    def graph_call(self, graph_call: GraphCall) -> None: ...
    def brief_log(self) -> list[Any] | None: ...
    def brief_failed(self, entry: Brief, error: BaseException) -> None: ...
    def mark(self, kind: str, text: str) -> None: ...
    def finding(self, finding: Finding) -> None: ...
    def step(self) -> None: ...


class Bystander(Protocol):
    """Hears of operators that launch nothing: views, allocations, fake tensors, subclasses unwrapping."""

    def passing(self, what: str, func: Any, args: Any, kwargs: Any) -> Callable[[Any], None] | None:
        """Called before; what it returns is called with the result."""

    def unwrapping(self, func: Any, types: Any, args: Any, kwargs: Any) -> None: ...


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
        self.bystanders: tuple[Bystander, ...] = ()
        self.storages = Storages()
        self.here = _ThreadState()
        self.capture: list[Template] | None = None  # of the CUDA graph that is being captured
        self.brief: Callable[[Brief], Any] | None = None  # notes a launch, while no recording wants more
        self._graph_calls = itertools.count()
        self.site_ids = itertools.count()
        self._kernels: dict[tuple[str, str, str], Kernel] = {}
        self._kernel_ids = itertools.count()
        self._lock = threading.Lock()

    def attach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = (*self.listeners, listener)
            self.look_again()

    def detach(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            self.look_again()
            if not self.listeners:
                self.storages.clear()
                self._kernels = {}

    def forget(self) -> None:
        """In a forked child: nobody listens, and the weak references are its own copies."""
        self.listeners = ()
        self.bystanders = ()
        self.brief = None
        self.storages = Storages()
        self.here = _ThreadState()
        self._lock = threading.Lock()

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

    def look_again(self) -> None:
        """Whether every recording can do with brief notes may have changed."""
        logs = [listener.brief_log() for listener in self.listeners]
        if not logs or self.capture is not None or any(log is None for log in logs):
            self.brief = None
        elif len(logs) == 1:
            self.brief = logs[0].append if logs[0] is not None else None
        else:
            notes = [log.append for log in logs if log is not None]
            self.brief = lambda entry: [note(entry) for note in notes]

    def capturing(self, templates: list[Template] | None) -> None:
        """A CUDA graph's capture begins, or with None has ended."""
        self.capture = templates
        self.look_again()

    def brief_failed(self, entry: Brief, error: BaseException) -> None:
        for listener in self.listeners:
            listener.brief_failed(entry, error)

    def graph_call(self, graph: Graph, phase: Phase, stream: int) -> int:
        """A compiled graph starts to execute."""
        call = GraphCall(next(self._graph_calls), graph, threading.get_ident(), stream, phase)
        for listener in self.listeners:
            listener.graph_call(call)
        return call.index

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

    def pass_by(self, what: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run an operator that launches nothing, for those who list it all the same."""
        if not self.bystanders:
            return func(*args, **kwargs)
        told = self._tell(func, [partial(b.passing, what, func, args, kwargs) for b in self.bystanders])
        result = func(*args, **kwargs)
        self._tell(func, [partial(t, result) for t in told if t is not None])
        return result

    def unwrapped(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        """A subclass is about to take an operator apart."""
        self._tell(func, [partial(b.unwrapping, func, types, args, kwargs) for b in self.bystanders])

    def _tell(self, func: Any, listeners: list[Callable[[], Any]]) -> list[Any]:
        answers = []
        for listener in listeners:
            try:
                answers.append(listener())
            except Exception:
                self.finding(own_fault(f"looking at {func}"))
        return answers

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
            if _modes():
                launch = unseen(self._begin, point, flat, func, args, kwargs)
            else:
                launch = self._begin(point, flat, func, args, kwargs)
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
            if _modes():
                unseen(self._end, launch)
            else:
                self._end(launch)
            launch.error = None  # with its traceback it would be a cycle that keeps the arguments alive
        return launch.result

    def _begin(self, point: LaunchPoint, flat: Any, func: Any, args: Any, kwargs: Any) -> Launch:
        here, launch = self.here, Launch()
        launch.point, launch.flat, launch.func, launch.args, launch.kwargs = point, flat, func, args, kwargs
        launch.site = point.site
        launch.result, launch.error, launch.returned = None, None, []
        launch.outer = here.launch
        launch.graph_call = here.graph_call
        launch.phase = self.phase()
        launch.start_ns = monotonic_ns()
        launch.stream, launch.captured = _stream(point, kwargs) if point.cuda_index >= 0 else (0, False)
        if self.brief is not None and point.familiar is not None:
            launch.is_tracked, launch.storages, launch.dead = False, [], point.familiar.dead
            launch.storage_ids = launch.epochs = launch.offsets = ()
        else:
            launch.is_tracked = True
            self._look_at_tensors(launch, point, flat)
        launch.calls = {}
        for listener in self.listeners:
            try:
                launch.calls[listener] = listener.before(launch)
            except Exception:
                listener.finding(own_fault(f"recording {point.site.kernel.name}"))
        return launch

    def _look_at_tensors(self, launch: Launch, point: LaunchPoint, flat: Any) -> None:
        """A recorded launch spends most of its time here, so one loop does all there is to do."""
        found, ids, epochs, offsets, dead = [], [], [], [], []
        known, storages = self.storages.known, self.storages
        for i in point.tensors:
            tensor = flat[i]
            storage = known(tensor.untyped_storage()._cdata) or storages.of(tensor)
            found.append(storage)
            ids.append(storage.id)
            epochs.append(storage.epoch)
            offsets.append(tensor.storage_offset())
            if storage.unwritten and not storages.is_live(tensor, storage, reading=i not in point.written):
                dead.append(i)
        launch.storages = found
        launch.storage_ids, launch.epochs, launch.offsets = tuple(ids), tuple(epochs), tuple(offsets)
        launch.dead = tuple(dead)

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
        if launch.is_tracked:
            for i, place in point.outputs:
                self.storages.wrote(launch.flat[i], launch.storages[place])
                if point.is_pending:
                    self.storages.born(launch.flat[i])
        if launch.error is not None:
            return
        seal, point.seal = point.seal, None
        if seal is not None:
            point.site = seal(point.site, launch)
        launch.site = self._with_returns(launch) if point.returns else point.site
        if point.is_wrappers and point.is_static and point.familiar is None and launch.is_tracked:
            point.familiar = Familiar(launch.site, launch.dead)

    def _with_returns(self, launch: Launch) -> Site:
        point = launch.point
        if id(launch.result) in map(id, launch.flat):  # out=, or in place
            return point.site
        given = {id(value) for value in launch.flat}
        named = [(n, t) for n, t in returned_tensors(launch.result, point.return_names) if id(t) not in given]
        launch.returned = [tensor for _, tensor in named]
        site = self._site_returning(launch, named)
        if not launch.is_tracked:
            return site
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


def _stream(point: LaunchPoint, kwargs: dict[str, Any]) -> tuple[int, bool]:
    stream = kwargs.get("stream")
    if not isinstance(stream, int):
        stream = torch._C._cuda_getCurrentRawStream(point.cuda_index)
    return stream, torch._C._cuda_isCurrentStreamCapturing()


def unseen(do: Callable[..., _Result], *args: Any) -> _Result:
    """Do something of our own where the user's torch-function modes do not see what it asks of tensors."""
    if not _modes():
        return do(*args)
    with torch._C.DisableTorchFunction():
        return do(*args)


def own_fault(where: str) -> Finding:
    """The recorder's own mistake: said, but never the user's problem."""
    trace = traceback.format_exc(limit=-3).strip()
    return Finding("recorder-error", f"kernelscope failed while {where}; the program went on.\n{trace}")


BUS = Bus()
