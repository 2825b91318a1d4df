"""Inductor's benchmarking: launches that are not the program's own."""

from __future__ import annotations

from typing import Any

from kernelscope.probes.bus import BUS
from kernelscope.probes.patching import Patch, resolve

_MODULE = "torch._inductor.runtime.benchmarking"


class Autotuning:
    """The probe that mutes all others while Inductor times candidates."""

    def __init__(self) -> None:
        self._patches: list[Patch] = []

    def install(self) -> None:
        holder, _ = resolve(f"{_MODULE}:Benchmarker.benchmark")
        classes = [holder, *_subclasses(holder)]
        for cls in classes:
            for name in [n for n in vars(cls) if n.startswith("benchmark")]:
                patch = Patch(f"{cls.__module__}:{cls.__qualname__}.{name}", _muted)
                patch.install()
                self._patches.append(patch)

    def remove(self) -> None:
        for patch in reversed(self._patches):
            patch.remove()
        self._patches.clear()


def _subclasses(cls: Any) -> list[Any]:
    direct: list[Any] = cls.__subclasses__()
    return [each for sub in direct for each in [sub, *_subclasses(sub)]]


def _muted(original: Any) -> Any:
    def benchmark(*args: Any, **kwargs: Any) -> Any:
        with BUS.mute():
            return original(*args, **kwargs)

    return benchmark
