"""Artifacts of `torch.compiler.precompile`: generated modules that run without a compiled graph."""

from __future__ import annotations

import importlib.util
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from kernelscope.events import Finding
from kernelscope.probes.bus import BUS
from kernelscope.probes.contained import contained
from kernelscope.probes.patching import Patch, PatchSet

from .compiled_graphs import CompiledGraphs

_HOME = "torch._precompile"
_OF_EAGER = ("load_aoti_eager_cache", "aoti_compile_with_persistent_cache")
_INNER = "_inner_call"  # the global that holds Inductor's own `call`; the functions around it look it up
_TOO_EARLY = (
    "an artifact of torch.compiler.precompile ran that was loaded before this recording began, so its "
    "launches are not recorded; call torch.compiler.precompile.load inside the recording"
)
_NO_CALL = (
    "an artifact of torch.compiler.precompile has no Inductor code of a known form, so its launches are not "
    'recorded; ops="all" (on the command line --ops all) records its operators'
)
_IN_EAGER = (
    'an artifact of torch.compiler.precompile ran that was made with backend="eager", so it has no kernels; '
    'ops="all" (on the command line --ops all) records its operators'
)
_BY_ITSELF = (
    "code that Inductor generated is run as a module, by {by}, so its launches are not recorded; an artifact "
    "of torch.compiler.precompile is recorded when torch.compiler.precompile.load loads it in the recording"
)
_MADE_BY_PROGRAM = (
    "kernels that {by} makes with Inductor's AsyncCompile are not recorded where the program launches them "
    "itself: only the wrappers of compiled graphs are observed"
)
_EAGER_OPERATOR = (
    "aten operators were given kernels that AOTInductor compiles (Library._impl_with_aoti_compile: {name}); "
    "what these launch is not recorded, because torch runs them without Python. "
    'ops="all" (on the command line --ops all) records each operator as one call'
)
_TORCH = str(Path(torch.__file__).parent)


def _is_run_by_torch(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


class ArtifactGraph:
    """What the probe of compiled graphs needs to know of the graph inside an artifact."""

    def __init__(self, namespace: dict[str, Any], source: str, call: Callable[[Any], Any]) -> None:
        self.source_code = source
        self.current_callable = getattr(call, "__func__", call)
        self.call = call
        self.namespace = namespace
        self.fx_kwargs = {"is_inference": True}
        self.cache_linemap: list[Any] = []
        self.device_types = {"cuda"} if "empty_strided_cuda((" in source else set()
        self._fx_graph_cache_key = ""


class PrecompiledArtifacts(PatchSet):
    """The probe: while a recording is open, an artifact's graph is called the way compiled graphs are."""

    def __init__(self, graphs: CompiledGraphs) -> None:
        super().__init__(
            Patch("torch._inductor.async_compile:AsyncCompile.wait", self._around_wait),
            *(Patch(f"torch._inductor.aoti_eager:{name}", self._around_eager_operator) for name in _OF_EAGER),
        )
        self._knows_precompile = False
        self._graphs = graphs
        self._artifacts: list[ArtifactGraph] = []
        # By `forward` of each artifact that was seen while it was loaded: torch does not keep the text.
        self._sources: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._followed: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self) -> None:
        if not self._knows_precompile and importlib.util.find_spec(_HOME) is not None:
            self._knows_precompile = True
            self.patches += [
                Patch(f"{_HOME}:_make_inlined_forward", self._around_load),
                Patch(f"{_HOME}:PrecompiledModule.__call__", self._around_call),
            ]
        super().install()

    def remove(self) -> None:
        for artifact in self._artifacts:
            artifact.namespace[_INNER] = artifact.call
        self._artifacts.clear()
        self._followed = weakref.WeakSet()
        super().remove()

    def _around_wait(self, original: Any) -> Any:
        """The last line of a generated module before its functions."""

        def wait(makers: Any, scope: Any) -> Any:
            with contained("finding out what runs generated code"):
                frame = sys._getframe(1)  # the generated module
                if frame.f_globals is not scope:
                    if not _is_run_by_torch(frame):
                        by = frame.f_code.co_filename
                        BUS.finding(Finding("unseen-launch", _MADE_BY_PROGRAM.format(by=by)))
                elif not _is_run_by_torch(frame.f_back):
                    by = "a program of its own" if frame.f_back is None else frame.f_back.f_code.co_filename
                    BUS.finding(Finding("unseen-graph", _BY_ITSELF.format(by=by)))
            return original(makers, scope)

        return wait

    def _around_eager_operator(self, original: Any) -> Any:
        """Called by torch's C++ when it looks for such a kernel, and when it has one compiled."""

        def found(namespace: str, name: str, *args: Any, **kwargs: Any) -> Any:
            BUS.finding(Finding("unseen-graph", _EAGER_OPERATOR.format(name=f"{namespace}.{name}")))
            return original(namespace, name, *args, **kwargs)

        return found

    def _around_load(self, original: Any) -> Any:
        def load(python_code: str, *args: Any, **kwargs: Any) -> Any:
            forward = original(python_code, *args, **kwargs)
            with contained("noting an artifact of torch.compiler.precompile"):
                self._sources[forward] = python_code
            return forward

        return load

    def _follow(self, forward: Any) -> None:
        self._followed.add(forward)
        namespace = forward.__globals__
        if namespace.get("BACKEND") == "eager":
            BUS.finding(Finding("ran-in-eager", _IN_EAGER))
            return
        source = self._sources.get(forward)
        if source is None:
            BUS.finding(Finding("unseen-graph", _TOO_EARLY))
            return
        call = namespace.get(_INNER)
        if call is None:
            BUS.finding(Finding("unseen-graph", _NO_CALL))
            return
        artifact = ArtifactGraph(namespace, source, call)
        run = self._graphs.calling(lambda graph, inputs: graph.call(inputs))
        self._artifacts.append(artifact)
        namespace[_INNER] = lambda inputs: run(artifact, inputs)

    def _around_call(self, original: Any) -> Any:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            forward = getattr(module, "_loaded_forward", None)
            if forward is not None and forward not in self._followed and BUS.listeners:
                with contained("reading an artifact of torch.compiler.precompile"):
                    self._follow(forward)
            return original(module, *args, **kwargs)

        return call
