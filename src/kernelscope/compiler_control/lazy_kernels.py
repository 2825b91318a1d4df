"""Builds C++ kernels at their first launch.

Inductor builds all kernels of a graph before its first execution. Where eager replaces the launches, most of
that work is wasted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet

_COMPILE = "torch._inductor.async_compile:AsyncCompile"


class LazyKernels(PatchSet):
    """While installed, C++ kernels of the graphs that are compiled are built at their first launch.

    These graphs cannot be used any more after its removal.
    """

    def __init__(self) -> None:
        self._namespaces: list[dict[str, Any]] = []  # of generated modules
        super().__init__(
            Patch(f"{_COMPILE}.cpp_pybinding", _around_binding),
            Patch(f"{_COMPILE}.wait", self._around_wait),
        )

    def remove(self) -> None:
        super().remove()
        for names in self._namespaces:
            for name in [name for name, value in names.items() if isinstance(value, _LazyKernel)]:
                kernel = names.pop(name)
                if kernel.built is not None:
                    names[name] = kernel.built
        self._namespaces.clear()

    def _around_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(compiling: Any, names: dict[str, Any]) -> Any:
            self._namespaces.append(names)
            return original(compiling, names)

        return wait


class _LazyKernel:
    """Takes the place of a kernel in the wrapper until its first launch."""

    __slots__ = ("_build", "built")

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self.built: Any = None

    def __call__(self, *args: Any) -> Any:
        if self.built is None:
            made = self._build()
            self.built = made.result() if hasattr(made, "result") else made  # compiled in a thread
        return self.built(*args)


def _around_binding(original: Callable[..., Any]) -> Callable[..., Any]:
    def cpp_pybinding(compiling: Any, argtypes: list[str], source: str) -> _LazyKernel:
        return _LazyKernel(partial(original, compiling, argtypes, source))

    return cpp_pybinding
