"""What observes the producers of calls. The only code that touches private API of torch and triton."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from typing import Protocol

from .autotuning import Autotuning
from .bus import BUS as BUS
from .compiled_graphs import CompiledGraphs
from .cuda_graphs import CudaGraphs
from .eager_operators import EagerOperators
from .optimizer_steps import OptimizerSteps
from .patching import MovedTarget
from .user_triton import UserTriton


class Probe(Protocol):
    def install(self) -> None: ...
    def remove(self) -> None: ...


class Probes:
    """The probes of this process: installed with the first recording, gone with the last."""

    def __init__(self) -> None:
        self._always: list[Probe] = [
            Autotuning(),
            CudaGraphs(),
            CompiledGraphs(),
            UserTriton(),
            OptimizerSteps(),
        ]
        self._operators = EagerOperators()
        self._installed: list[Probe] = []
        self._users = 0
        self._lock = threading.RLock()

    def acquire(self, *, operators: bool, strict: bool) -> None:
        with self._lock:
            try:
                if self._users == 0:
                    self._install(self._always, strict)
                self._users += 1
                if operators:
                    self._operators.install()
            except BaseException:
                if self._users == 0:
                    self._remove_all()
                raise

    def release(self, *, operators: bool) -> None:
        with self._lock:
            try:
                if operators:
                    self._operators.remove()
            finally:
                self._users -= 1
                if self._users == 0:
                    self._remove_all()

    def _install(self, probes: Iterable[Probe], strict: bool) -> None:
        for probe in probes:
            try:
                probe.install()
            except MovedTarget as moved:
                probe.remove()
                if strict:
                    raise
                warnings.warn(f"{type(probe).__name__} is off: {moved}", RuntimeWarning, stacklevel=5)
            else:
                self._installed.append(probe)

    def _remove_all(self) -> None:
        while self._installed:
            self._installed.pop().remove()

    def forget_in_child(self) -> None:
        """A forked child does not record: it puts back what its parent's recordings had replaced."""
        self._users = 0
        self._lock = threading.RLock()
        self._operators.forget()
        self._remove_all()
        BUS.forget()


PROBES = Probes()
