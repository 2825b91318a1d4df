"""Leaves the C++ compiler alone until a kernel is launched.

Inductor builds all kernels of a graph before its first execution. Where launches are replaced by something
else, most of that is for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .patching import Patch

_COMPILE = "torch._inductor.async_compile:AsyncCompile"


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
        for names in self._namespaces:
            for name in [name for name, value in names.items() if isinstance(value, LazyKernel)]:
                del names[name]
        self._namespaces.clear()

    def _around_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(compiling: Any, names: dict[str, Any]) -> Any:
            self._namespaces.append(names)
            return original(compiling, names)

        return wait


class LazyKernel:
    """Stands in the wrapper in place of a kernel that nobody has launched yet."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._built: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._built is None:
            made = self._build()
            self._built = made.result() if hasattr(made, "result") else made  # compiled in a thread
        return self._built(*args)


def _around_binding(original: Callable[..., Any]) -> Callable[..., Any]:
    def cpp_pybinding(compiling: Any, argtypes: list[str], source: str) -> LazyKernel:
        return LazyKernel(partial(original, compiling, argtypes, source))

    return cpp_pybinding
