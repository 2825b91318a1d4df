"""Graphs whose wrapper is C++, `cpp_wrapper` and AOTInductor: no Python runs between their kernels.

What is compiled while a recording is open, or through `kernelscope.aoti_compile_and_package`, has each launch
tell of itself (`cpp_code`), to a log in C (`launch_log`), which is drained when the wrapper has returned.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..events import Finding, Frame, Graph
from .bus import BUS, own_fault
from .cpp_code import instrument
from .cpp_shims import Descriptions
from .launch import LaunchPoint
from .launch_log import BEGIN, Entry, LaunchLog, launch_log, why_no_log
from .origins import caller_frames
from .past_launches import PastLaunches
from .patching import Patch

_JIT = "torch._inductor.codecache:CppWrapperCodeCache.load_pybinding_async"
_AOT = "torch._inductor.codecache:AotCodeCompiler.compile"
_PACKAGE = "torch.export.pt2_archive._package:AOTICompiledModel.__call__"
ROOM = 2 << 30  # bytes of copies that may wait
_FOREIGN = (
    "its package was compiled without kernelscope, so its launches are not recorded. Compile it with "
    "kernelscope.aoti_compile_and_package, or run its exported program, torch.compile(program.module()), "
    "whose kernels need not be the same"
)


class _Printed:
    """Which kernels' names wrappers print themselves, before each launch; None for no printing."""

    globs: tuple[str, ...] | None = None


PRINTED = _Printed()


class CppWrappers:
    """The probe."""

    def __init__(self) -> None:
        self._patches = [
            Patch(_JIT, self._around_load),
            Patch(_AOT, around_compile),
            Patch(_PACKAGE, self._around_package),
        ]
        self._points: dict[Any, LaunchPoint] = {}
        self._graphs: dict[int, Graph] = {}  # of packages, by id of what is known of them
        self._ids = itertools.count(2_000_000)  # apart from others'
        self._lock = threading.Lock()

    def install(self) -> None:
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        for patch in reversed(self._patches):
            patch.remove()
        log = _known_log()
        if log is not None:
            log.stop()
            for _ in log.take(any_thread=True):  # of a wrapper that is still running: nobody listens any more
                pass
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
                kwargs["main_code"] = changed
            else:
                args = (args[0], changed, *args[2:])
            return original(*args, **kwargs)

        return load

    # -- running ---------------------------------------------------------------------------------------

    def _around_package(self, original: Any) -> Any:
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if BUS.here.muted or not BUS.listeners:
                return original(model, *args, **kwargs)
            tree = torch.utils._pytree.tree_leaves((args, kwargs))
            given = [each for each in tree if isinstance(each, torch.Tensor)]
            with BUS.mute(), torch.no_grad():
                inputs = [each.detach().clone() for each in given]  # as they are before it runs
            with self.listening(caller_frames(limit=100)) as told:
                result = original(model, *args, **kwargs)
                seen = told(inputs)
            if not seen:
                BUS.finding(Finding("unseen-graph", f"an AOTInductor model ran, and {_FOREIGN}"))
            return result

        return call

    @contextmanager
    def listening(self, origin: tuple[Frame, ...]) -> Iterator[Any]:
        """Hear what wrappers tell on this thread inside the block; the function given drains it."""
        log = launch_log()
        if log is None:
            BUS.finding(Finding("unseen-graph", f"launches in C++ wrappers are not recorded: {why_no_log()}"))
            yield lambda inputs: True
            return
        wants_values = any(listener.wants_values for listener in BUS.listeners)
        log.listen(ROOM if wants_values else 0)
        log.print_names(PRINTED.globs)
        log.connect()
        past = PastLaunches(self._points, wants_values=wants_values, origin=origin)
        sys.stdout.flush()  # names may be printed from C
        drained = False

        def drain(inputs: list[Any]) -> bool:
            nonlocal drained
            drained = True
            return self._drain(log, past, inputs)

        try:
            yield drain
        except BaseException:
            if not drained:  # the program's own: what happened before it is told all the same
                self._drain(log, past, [])
            raise
        finally:
            for _ in log.take():  # a watch has stopped the program before the rest was told
                pass

    def _drain(self, log: LaunchLog, past: PastLaunches, inputs: list[Any]) -> bool:
        """Make calls of what was told; whether anything was."""
        here = BUS.here
        before, seen = (here.graph_call, here.in_graph), False
        try:
            for entry in log.take():
                seen = True
                if entry.moment == BEGIN and before[0] < 0:
                    here.graph_call = BUS.graph_call(self._graph(entry), BUS.phase(), 0, inputs)
                    here.in_graph += 1
                past.tell(entry)
            past.finish_all()
        finally:
            here.graph_call, here.in_graph = before
            log.make_room(ROOM)
        return seen

    def _graph(self, entry: Entry) -> Graph:
        with self._lock:
            known = self._graphs.get(id(entry.meta))
            if known is None:
                source = str(entry.meta.get("source", ""))
                known = Graph(next(self._ids), "inference", str(entry.meta.get("title", "")), source=source)
                self._graphs[id(entry.meta)] = known
            return known


class CppWrapped:
    """A graph of `cpp_wrapper` for the probe of compiled graphs: like a Python wrapper, but told of late."""

    def __init__(
        self, wrappers: CppWrappers, *, optimizes: bool, is_cuda: bool, origin: tuple[Frame, ...]
    ) -> None:
        self._wrappers = wrappers
        self._origin = origin
        self.optimizes = optimizes
        self.is_cuda = is_cuda
        self.aot_name = ""
        self.namespace: dict[str, Any] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._wrappers.listening(self._origin) as told:
            yield
            if not told([]):
                BUS.finding(
                    Finding(
                        "unseen-graph",
                        "a graph with a C++ wrapper (cpp_wrapper) was compiled before this recording began, "
                        "so its launches are not recorded; compile it inside the recording",
                    )
                )

    def follow(self, ended: int = -1) -> None: ...
    def look_at(self, inputs: Any) -> None: ...
    def restore(self) -> None: ...
    def line_in(self, error: BaseException) -> int:
        return 0


def around_compile(original: Any) -> Any:
    """AOTInductor's last step before the C++ compiler."""

    def compile(
        graph: Any, wrapper_code: str, kernel_code: str, nodes: Any, *args: Any, **kwargs: Any
    ) -> Any:
        changed = _instrumented(wrapper_code, kernel_code, nodes)
        return original(graph, changed or wrapper_code, kernel_code, nodes, *args, **kwargs)

    return compile


@contextmanager
def instrumenting() -> Iterator[None]:
    """What AOTInductor compiles inside the block tells of its launches, wherever it runs."""
    patch = Patch(_AOT, around_compile)
    patch.install()
    try:
        yield
    finally:
        patch.remove()


def _instrumented(code: str, kernel_code: str, nodes: Any) -> str | None:
    """None where there is nothing to change, or it failed, which is said: then it is compiled as it was."""
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
            Finding("unseen-launch", f"calls of {name} in a C++ wrapper are not recorded: it is not known")
        )
    return made.code if made.launches else None


def _known_log() -> LaunchLog | None:
    from . import launch_log as module

    return module._log
