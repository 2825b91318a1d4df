"""Graphs with a C++ wrapper (`cpp_wrapper`, AOTInductor): launches are logged, and replayed later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernelscope.events import OWN_RANGE, Finding, Frame
from kernelscope.probes.bus import BUS
from kernelscope.probes.eager.profilers import range_if_profiled
from kernelscope.probes.origins import caller_frames
from kernelscope.probes.own_work import own_fault
from kernelscope.probes.patching import Patch, PatchSet

from .instrumented_code import instrument
from .listening import HeardGraphs, Listening
from .runners import runner_patches
from .shim_signatures import Descriptions

_JIT = "torch._inductor.codecache:CppWrapperCodeCache.load_pybinding_async"
_AOT = "torch._inductor.codecache:AotCodeCompiler.compile"
_PACKAGE = "torch.export.pt2_archive._package:AOTICompiledModel.__call__"
_FOREIGN = (
    "its package was compiled without kernelscope, so its launches are not recorded. Compile it with "
    "kernelscope.aoti_compile_and_package, or run its exported program, torch.compile(program.module()), "
    "whose kernels need not be the same"
)
_TOO_EARLY = (
    "a graph with a C++ wrapper (cpp_wrapper) was compiled before this recording began, "
    "so its launches are not recorded; compile it inside the recording"
)


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
        self._heard = HeardGraphs()

    def remove(self) -> None:
        super().remove()
        self._heard.clear()

    def forget_locks(self) -> None:
        self._heard.forget_locks()

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
            with self._running_model(_inputs(model, args, kwargs) if _shows_inputs() else ()):
                return original(model, *args, **kwargs)

        return call

    def _around_run(self, original: Any) -> Any:
        def run(runner: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if BUS.here.muted or not BUS.listeners or self._here.model:
                return original(runner, inputs, *args, **kwargs)
            with self._running_model(_copies(inputs) if _shows_inputs() else ()):
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

    def listening(self, origin: tuple[Frame, ...], unseen: str, inputs: Sequence[Any] = ()) -> Listening:
        """Log the launches of wrappers on this thread; recordings get them when the block ends."""
        return Listening(self._heard, origin, unseen, inputs)


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

    def running(self) -> Listening:
        return self._wrappers.listening(self._origin, _TOO_EARLY)

    def follow(self, ended: int = -1) -> None: ...
    def look_at(self, inputs: Any) -> None: ...
    def restore(self) -> None: ...
    def line_in(self, error: BaseException) -> int:
        return 0


def _shows_inputs() -> bool:
    """Whether their contents may be wanted when the model has returned: it may write to them."""
    return any(listener.wants_values for listener in BUS.listeners)


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
