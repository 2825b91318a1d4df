"""The probes of this process: which there are, and when each is installed."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Protocol

from kernelscope.config import has_gil
from kernelscope.errors import NoGil
from kernelscope.own_warnings import printed_at_most
from kernelscope.probes.compilation.benchmarking import Autotuning
from kernelscope.probes.compilation.compile_stages import CompileStages
from kernelscope.probes.cpp_wrappers.instrumented_graphs import CppWrappers
from kernelscope.probes.cuda_graphs.captured_graphs import CudaGraphs
from kernelscope.probes.distributed.waits import CollectiveWaits
from kernelscope.probes.dynamo.eval_frames import TriedFrames
from kernelscope.probes.eager.eager_operators import EagerOperators
from kernelscope.probes.eager.optimizer_steps import OptimizerSteps
from kernelscope.probes.eager.profilers import Profilers
from kernelscope.probes.gcu.graphs import GcuGraphs
from kernelscope.probes.python_wrappers.compiled_graphs import CompiledGraphs
from kernelscope.probes.python_wrappers.precompiled import PrecompiledArtifacts
from kernelscope.probes.triton.user_kernels import UserTriton

from .bus import BUS
from .patching import ADVICE, MovedTarget, refuse_old_torch

_USERS_LINE = 6  # from a warning here up to the user's `with record(…)`


class Probe(Protocol):
    def install(self) -> None: ...
    def remove(self) -> None: ...


class Probes:
    """The probes of this process: installed with the first recording, gone with the last."""

    def __init__(self) -> None:
        cpp_wrappers = CppWrappers()
        self.compiled_graphs = CompiledGraphs(cpp_wrappers)
        self.tried = TriedFrames()
        self.always: list[Probe] = [
            Autotuning(),
            CudaGraphs(),
            self.compiled_graphs,
            cpp_wrappers,
            PrecompiledArtifacts(self.compiled_graphs),
            UserTriton(),
            GcuGraphs(),
            OptimizerSteps(),
            Profilers(),
            CollectiveWaits(),
            self.tried,
        ]
        self._operators = EagerOperators()
        self.stages = CompileStages()
        self._stages_users = 0
        self.installed: list[Probe] = []
        self._moved: list[str] = []  # why probes are off
        self._users = 0
        self._lock = threading.RLock()

    @property
    def are_used(self) -> bool:
        """Whether what runs now is observed."""
        return self._users > 0

    def check(self) -> dict[str, str]:
        """Installs and removes each probe: its name, and why it cannot be used, or nothing."""
        found = {}
        for probe in [*self.always, self._operators]:
            found[type(probe).__name__] = ""
            try:
                probe.install()
            except Exception as error:
                found[type(probe).__name__] = str(error)
            with suppress(Exception):
                probe.remove()
        return found

    def acquire(self, *, operators: bool, strict: bool) -> list[str]:
        """Returns which probes are off, and why."""
        check_gil()
        with self._lock:
            try:
                if self._users == 0:
                    refuse_old_torch()
                    for probe in self.always:
                        self._install(probe, strict)
                else:
                    self._warn_again(strict)
                missing = self._install_operators(strict) if operators else []
            except BaseException:
                if self._users == 0:
                    self._remove_all()
                raise
            self._users += 1
            return [*self._moved, *missing]

    def release(self, *, operators: bool) -> None:
        with self._lock:
            try:
                if operators:
                    self._operators.remove()
            finally:
                self._users -= 1
                if self._users == 0:
                    self._remove_all()

    def acquire_stages(self) -> list[str]:
        """For a recording that has the other probes already; returns which stages cannot be observed."""
        with self._lock:
            if self._stages_users == 0:
                with printed_at_most():
                    self.stages.install()
            self._stages_users += 1
            return self.stages.misfits

    def release_stages(self) -> None:
        with self._lock:
            self._stages_users -= 1
            if self._stages_users == 0:
                self.stages.remove()

    def _install(self, probe: Probe, strict: bool) -> None:
        try:
            with printed_at_most():
                probe.install()
        except BaseException as error:
            probe.remove()  # what it had replaced before it failed
            if strict or not isinstance(error, MovedTarget):
                raise
            self._moved.append(f"{type(probe).__name__} is off: {error.what}")
            warnings.warn(self._moved[-1], RuntimeWarning, stacklevel=_USERS_LINE)
        else:
            self.installed.append(probe)

    def _install_operators(self, strict: bool) -> list[str]:
        try:
            with printed_at_most():
                self._operators.install()
        except MovedTarget as moved:
            if strict:
                self._operators.remove()
                raise
            message = f"EagerOperators is off: {moved.what}"
            warnings.warn(message, RuntimeWarning, stacklevel=_USERS_LINE)
            return [message]
        return []

    def _warn_again(self, strict: bool) -> None:
        """A recording that joins others lacks the probes that they lack."""
        for message in self._moved:
            if strict:
                raise MovedTarget(message, ADVICE)
            warnings.warn(message, RuntimeWarning, stacklevel=_USERS_LINE)

    def _remove_all(self) -> None:
        self._moved.clear()
        while self.installed:
            self.installed.pop().remove()

    def forget_in_child(self) -> None:
        """A forked child does not record: it puts back what its parent's recordings had replaced."""
        self._users = 0
        self._lock = threading.RLock()
        self._operators.forget()
        if self._stages_users:
            self._stages_users = 0
            self.stages.remove()
        self.compiled_graphs.forget_lock()
        self._remove_all()
        BUS.forget()


def check_gil() -> None:
    """Calls of several threads are put in order by appending to lists, without locks."""
    if not has_gil():
        raise NoGil


PROBES = Probes()
