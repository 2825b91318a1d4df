"""Graphs with a C++ wrapper (`cpp_wrapper`, AOTInductor): launches are logged, and replayed later."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernelscope.events import CPP_RANGE, OWN_RANGE, Finding, Frame, Graph
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.eager.profilers import range_if_profiled
from kernelscope.probes.launch import LaunchPoint
from kernelscope.probes.origins import caller_frames
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.patching import Patch, PatchSet

from .instrumented_code import instrument
from .launch_log import BEGIN, Entry, launch_log, why_no_log
from .launch_replay import PastLaunches
from .runners import runner_patches
from .shim_signatures import Descriptions

_JIT = "torch._inductor.codecache:CppWrapperCodeCache.load_pybinding_async"
_AOT = "torch._inductor.codecache:AotCodeCompiler.compile"
_PACKAGE = "torch.export.pt2_archive._package:AOTICompiledModel.__call__"
ROOM = 2 << 30  # bytes of copies that may wait
_FOREIGN = (
    "its package was compiled without kernelscope, so its launches are not recorded. Compile it with "
    "kernelscope.aoti_compile_and_package, or run its exported program, torch.compile(program.module()), "
    "whose kernels need not be the same"
)
_TOO_EARLY = (
    "a graph with a C++ wrapper (cpp_wrapper) was compiled before this recording began, "
    "so its launches are not recorded; compile it inside the recording"
)


class Printed:
    """Which kernels' names wrappers print themselves, before each launch."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[str, ...]] = {}  # by id of the session

    def want(self, by: object, globs: tuple[str, ...] | None) -> None:
        """With None, no names any more."""
        self._wanted.pop(id(by), None)
        if globs is not None:
            self._wanted[id(by)] = globs

    @property
    def globs(self) -> tuple[str, ...] | None:
        """None for no printing; empty for all."""
        wanted = list(self._wanted.values())
        if not wanted:
            return None
        return () if () in wanted else tuple(glob for globs in wanted for glob in globs)


PRINTED = Printed()


class _Inside(threading.local):
    model = False  # whether this thread runs a model of AOTInductor


class CppWrappers(PatchSet):
    """The probe."""

    def __init__(self) -> None:
        super().__init__(
            Patch(_JIT, self._around_load),
            Patch(_AOT, around_compile),
            Patch(_PACKAGE, self._around_package),
            *runner_patches(self._around_run),
        )
        self._here = _Inside()
        self._points: dict[Any, LaunchPoint] = {}
        self._graphs: dict[int, Graph] = {}  # of packages, by id of what is known of them
        self._ids = itertools.count(2_000_000)  # apart from others'
        self._lock = threading.Lock()

    def remove(self) -> None:
        super().remove()
        self._points.clear()
        self._graphs.clear()

    # -- compiling -------------------------------------------------------------------------------------

    def _around_load(self, original: Any) -> Any:
        def load(*args: Any, **kwargs: Any) -> Any:
            words = dict(zip(("argtypes", "main_code"), args, strict=False)) | kwargs
            code, kernels = str(words.get("main_code", "")), str(words.get("kernel_code") or "")
            changed = _instrumented(code, kernels, None)
            if changed is None:
                return original(*args, **kwargs)
            if "main_code" in kwargs:
                made = original(*args, **{**kwargs, "main_code": changed})
            else:
                made = original(args[0], changed, *args[2:], **kwargs)
            return lambda: _or_as_it_was(made, lambda: original(*args, **kwargs)())

        return load

    # -- running ---------------------------------------------------------------------------------------

    def _around_package(self, original: Any) -> Any:
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if BUS.here.muted or not BUS.listeners:
                return original(model, *args, **kwargs)
            with self._running_model(_inputs(model, args, kwargs)):
                return original(model, *args, **kwargs)

        return call

    def _around_run(self, original: Any) -> Any:
        def run(runner: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if BUS.here.muted or not BUS.listeners or self._here.model:
                return original(runner, inputs, *args, **kwargs)
            with self._running_model(_copies(inputs)):
                return original(runner, inputs, *args, **kwargs)

        return run

    @contextmanager
    def _running_model(self, inputs: Sequence[Any]) -> Iterator[None]:
        self._here.model = True  # its callable runs a loader, and that a runner: it is recorded once
        try:
            with self.listening(
                caller_frames(limit=100), f"an AOTInductor model ran, and {_FOREIGN}", inputs
            ):
                yield
        finally:
            self._here.model = False

    @contextmanager
    def listening(self, origin: tuple[Frame, ...], unseen: str, inputs: Sequence[Any] = ()) -> Iterator[None]:
        """Log the launches of wrappers on this thread; recordings get them when the block ends."""
        try:
            log = launch_log()
            if log is None:
                why = f"launches in C++ wrappers are not recorded: {why_no_log()}"
                BUS.finding(Finding("unseen-graph", why))
            else:
                wants_values = any(listener.wants_values for listener in BUS.listeners)
                log.print_names(PRINTED.globs)
                log.connect()
                sys.stdout.flush()  # names may be printed from C
        except Exception:
            BUS.finding(own_fault("preparing to log the launches of C++ wrappers, which are not recorded"))
            log = None
        if log is None:
            yield
            return
        entries: deque[Entry] = deque()
        has_returned = False
        try:
            with log.listening(ROOM if wants_values else 0), range_if_profiled(CPP_RANGE):
                try:
                    yield
                    has_returned = True
                finally:
                    with contained("reading the log of C++ wrappers"):
                        entries.extend(log.take())
        finally:  # also where the program failed: what happened before is recorded
            with contained("recording the launches of C++ wrappers"), range_if_profiled(OWN_RANGE):
                if has_returned and not entries:
                    BUS.finding(Finding("unseen-graph", unseen))
                self._replay(
                    entries, PastLaunches(self._points, wants_values=wants_values, origin=origin), inputs
                )

    def _replay(self, entries: deque[Entry], past: PastLaunches, inputs: Sequence[Any]) -> None:
        here = BUS.here
        before = here.graph_call, here.in_graph
        try:
            while entries:
                entry = entries.popleft()  # so that its copies can go
                if entry.moment == BEGIN and before[0] < 0:
                    here.graph_call = BUS.graph_call(self._graph(entry), BUS.phase(), 0, inputs)
                    here.in_graph += 1
                past.add(entry)
            past.close()
        finally:
            here.graph_call, here.in_graph = before

    def _graph(self, entry: Entry) -> Graph:
        with self._lock:
            known = self._graphs.get(id(entry.meta))
            if known is None:
                source = str(entry.meta.get("source", ""))
                known = Graph(next(self._ids), "inference", str(entry.meta.get("title", "")), source=source)
                self._graphs[id(entry.meta)] = known
            return known


class CppWrapped:
    """A graph of `cpp_wrapper`, with the interface of a hooked Python wrapper."""

    def __init__(
        self, wrappers: CppWrappers, *, optimizes: bool, is_cuda: bool, origin: tuple[Frame, ...]
    ) -> None:
        self._wrappers = wrappers
        self._origin = origin
        self.optimizes = optimizes
        self.is_cuda = is_cuda
        self.aot_name = ""
        self.settled: object = None
        self.namespace: dict[str, Any] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._wrappers.listening(self._origin, _TOO_EARLY):
            yield

    def follow(self, ended: int = -1) -> None: ...
    def look_at(self, inputs: Any) -> None: ...
    def restore(self) -> None: ...
    def line_in(self, error: BaseException) -> int:
        return 0


def _inputs(model: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """What a package is given, in its own order, as it is before it runs."""
    from torch.export._tree_utils import reorder_kwargs

    pytree = torch.utils._pytree
    try:
        spec = pytree.treespec_loads(model.loader.get_call_spec()[0])
        leaves = pytree.tree_leaves((args, reorder_kwargs(kwargs, spec)))
    except (ValueError, TypeError, KeyError, RuntimeError):
        return []  # not what the package takes: it will raise
    return _copies(leaves)


def _copies(values: Any) -> list[torch.Tensor]:
    try:
        with BUS.mute(), torch.no_grad(), range_if_profiled(OWN_RANGE):
            return [each.detach().clone() for each in values if isinstance(each, torch.Tensor)]
    except Exception:
        BUS.finding(own_fault("copying the inputs of an AOTInductor model"))
        return []


def around_compile(original: Any) -> Any:
    """AOTInductor's last step before the C++ compiler."""

    def compile(
        graph: Any, wrapper_code: str, kernel_code: str, nodes: Any, *args: Any, **kwargs: Any
    ) -> Any:
        def go(code: str) -> Any:
            return original(graph, code, kernel_code, nodes, *args, **kwargs)

        changed = _instrumented(wrapper_code, kernel_code, nodes)
        if changed is None:
            return go(wrapper_code)
        return _or_as_it_was(lambda: go(changed), lambda: go(wrapper_code))

    return compile


def instrumenting() -> PatchSet:
    """A context: what AOTInductor compiles inside reports its launches, wherever it runs."""
    return PatchSet(Patch(_AOT, around_compile))


def _instrumented(code: str, kernel_code: str, nodes: Any) -> str | None:
    """None where there is nothing to change, or where that failed: then it is compiled as it was."""
    if "kernelscope::launch" in code:  # by an outer one of us
        return None
    try:
        about = {"source": code, "title": "aoti"}
        made = instrument(code, Descriptions(code, kernel_code, nodes), about)
    except Exception:
        BUS.finding(own_fault("instrumenting a C++ wrapper, whose launches are not recorded"))
        return None
    for name in made.unseen:
        BUS.finding(
            Finding(
                "unseen-launch",
                f"calls of {name} in a C++ wrapper are not recorded: kernelscope does not know this function",
            )
        )
    return made.code if made.code != code else None


def _or_as_it_was(ours: Callable[[], Any], bare: Callable[[], Any]) -> Any:
    """Our additions must not keep a program from being compiled."""
    from torch._inductor.exc import CppCompileError

    try:
        return ours()
    except CppCompileError as error:
        result = bare()  # if it fails as well, it was not ours
        lines = [line for line in error.output.splitlines() if "error:" in line] or [str(error)]
        BUS.finding(
            Finding(
                "unseen-graph",
                "a C++ wrapper could not be compiled with the code that reports its launches, so they are "
                f"not recorded: {lines[0].strip()}",
            )
        )
        return result
