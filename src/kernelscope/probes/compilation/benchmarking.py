"""Inductor's benchmarking: launches that are not the program's own."""

from __future__ import annotations

from typing import Any

from kernelscope.probes.bus import BUS
from kernelscope.probes.patching import Patch, PatchSet, resolve

_MODULE = "torch._inductor.runtime.benchmarking"


class Autotuning(PatchSet):
    """The probe that mutes all others while Inductor times candidates."""

    def install(self) -> None:
        holder, _ = resolve(f"{_MODULE}:Benchmarker.benchmark")
        self.patches = [
            Patch(f"{cls.__module__}:{cls.__qualname__}.{name}", muted)
            for cls in [holder, *_subclasses(holder)]
            for name in vars(cls)
            if name.startswith("benchmark")
        ]
        super().install()


def _subclasses(cls: Any) -> list[Any]:
    direct: list[Any] = cls.__subclasses__()
    return [each for sub in direct for each in [sub, *_subclasses(sub)]]


def muted(original: Any) -> Any:
    """The same function; what it launches is not recorded."""

    def benchmark(*args: Any, **kwargs: Any) -> Any:
        with BUS.mute():
            return original(*args, **kwargs)

    return benchmark
