"""Leaves the C++ compiler alone until a kernel is launched.

Inductor builds all kernels of a graph before its first execution. Where launches are replaced by something
else, most of that is for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .patching import Patch

_BINDING = "torch._inductor.async_compile:AsyncCompile.cpp_pybinding"


class LazyKernels:
    """The probe: C++ kernels of graphs that are compiled while it is installed are built at first launch."""

    def __init__(self) -> None:
        self._patch = Patch(_BINDING, _around)

    def install(self) -> None:
        self._patch.install()

    def remove(self) -> None:
        self._patch.remove()


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


def _around(original: Callable[..., Any]) -> Callable[..., Any]:
    def cpp_pybinding(compiling: Any, argtypes: list[str], source: str) -> LazyKernel:
        return LazyKernel(partial(original, compiling, argtypes, source))

    return cpp_pybinding
