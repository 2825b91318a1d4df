"""Does not wait for the C++ compiler until a kernel is launched.

Inductor builds all kernels of a graph before its first execution. Where launches are replaced by something
else, most of that is for nothing; and where there is other work to do, that can be done meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from inspect import currentframe
from threading import Thread, enumerate
from typing import Any

from kernelscope.probes.patching import Patch

_COMPILE = "torch._inductor.async_compile:AsyncCompile"
_APART = "kernelscope-apart"  # the threads' name


class LazyKernels:
    """The probe: C++ kernels of graphs that are compiled while it is installed are built at first launch.

    These graphs are of no use any more when it is removed.
    """

    def __init__(self) -> None:
        self._namespaces: list[dict[str, Any]] = []  # of generated modules
        self._patches = [
            Patch(f"{_COMPILE}.cpp_pybinding", _around_binding),
            Patch(f"{_COMPILE}.wait", self._around_wait),
        ]

    def install(self) -> None:
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        for patch in reversed(self._patches):
            patch.remove()
        _let_go(self._namespaces)

    def _around_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(compiling: Any, names: dict[str, Any]) -> Any:
            self._namespaces.append(names)
            return original(compiling, names)

        return wait


class LazyKernel:
    """Stands in the wrapper in place of a kernel that nobody has launched yet."""

    __slots__ = ("_build", "built")

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self.built: Any = None

    def __call__(self, *args: Any) -> Any:
        return self.ready()(*args)

    def ready(self) -> Any:
        if self.built is None:
            made = self._build()
            self.built = made.result() if hasattr(made, "result") else made  # compiled in a thread
        return self.built


def _let_go(namespaces: list[dict[str, Any]]) -> None:
    """Kernels in place of what stands for them; nothing in place of those that nobody has waited for."""
    for names in namespaces:
        for name in [name for name, value in names.items() if isinstance(value, LazyKernel)]:
            kernel = names.pop(name)
            if kernel.built is not None:
                names[name] = kernel.built
    namespaces.clear()


def _around_binding(original: Callable[..., Any]) -> Callable[..., Any]:
    def cpp_pybinding(compiling: Any, argtypes: list[str], source: str) -> LazyKernel:
        return LazyKernel(partial(original, compiling, argtypes, source))

    return cpp_pybinding


class AwaitedKernels:
    """The probe: C++ kernels are built at once, in threads, and waited for at their first launch.

    idle   is called once, instead of waiting, before the first of these launches
    apart  in threads of their own: what others build does not have to wait for these, should they hang

    Where Inductor has no threads, or where Dynamo goes on without a graph that cannot be compiled, nothing is
    done otherwise than without it. What is compiled outlasts its removal, up to `let_go`.
    """

    def __init__(self, idle: Callable[[], None] | None = None, *, apart: bool = False) -> None:
        self._idle = idle
        self._is_idle = False  # what is compiled now is of somebody else
        self._namespaces: list[dict[str, Any]] = []
        self._patches = [
            Patch(f"{_COMPILE}.cpp_pybinding", self._around_binding),
            Patch(f"{_COMPILE}.wait", self._around_wait),
            *([Patch(f"{_COMPILE}.submit", _around_submit)] if apart else []),
        ]

    def install(self) -> None:
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        self._idle = None
        for patch in reversed(self._patches):
            patch.remove()

    def wait(self) -> None:
        """Also for kernels that nobody has launched: one that cannot be built is an error all the same."""
        self._idle = None
        for names in self._namespaces:
            for value in list(names.values()):
                if isinstance(value, LazyKernel):
                    value.ready()

    def let_go(self) -> None:
        """Graphs with kernels that were never launched are of no use any more."""
        _let_go(self._namespaces)

    def _around_binding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch._dynamo.config as dynamo_config

        def cpp_pybinding(compiling: Any, argtypes: list[str], source: str) -> Any:
            made = original(compiling, argtypes, source)
            is_future = hasattr(made, "result") and not self._is_idle
            can_wait = is_future and not dynamo_config.suppress_errors
            return LazyKernel(partial(self._wait, made)) if can_wait else made

        return cpp_pybinding

    def _around_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(compiling: Any, names: dict[str, Any]) -> Any:
            if not self._is_idle:
                self._namespaces.append(names)
            return original(compiling, names)

        return wait

    def _wait(self, made: Any) -> Any:
        idle, self._idle = self._idle, None
        if idle is not None:
            self._is_idle = True
            try:
                idle()
            finally:
                self._is_idle = False
        try:
            return made.result()
        except Exception as error:  # as it would have been raised while the graph was compiled
            from torch._inductor.exc import InductorError

            raise InductorError(error, currentframe()).with_traceback(error.__traceback__) from None


def is_building_apart() -> bool:
    return any(thread.name == _APART for thread in enumerate())


def _around_submit(original: Callable[[Callable[[], Any]], Any]) -> Any:
    from torch._inductor.async_compile import get_compile_threads

    def submit(task: Callable[[], Any]) -> Any:
        if get_compile_threads() <= 1:
            return original(task)
        made: Future[Any] = Future()
        Thread(target=_do, args=(task, made), name=_APART, daemon=True).start()
        return made

    return staticmethod(submit)


def _do(task: Callable[[], Any], made: Future[Any]) -> None:
    try:
        made.set_result(task())
    except BaseException as error:
        made.set_exception(error)
