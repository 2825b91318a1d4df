"""Runs trials in this process.

Compiled code stays as long as only run-time switches change. Otherwise everything is compiled again, in an
empty cache: Inductor's cache keys do not contain our switches.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from kernelscope.compiler_control.cautious_settings import CAUTIOUS, DYNAMO, INDUCTOR, split, switchable
from kernelscope.compiler_control.forced_settings import NO_CACHES, ForcedSettings
from kernelscope.compiler_control.lazy_kernels import LazyKernels
from kernelscope.compiler_control.shared_binaries import SharedBinaries
from kernelscope.compiler_control.switches import CompilerSwitches
from kernelscope.errors import RunError
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.compile_settings import defaults_of_changed, values_of
from kernelscope.probes.compilation.lowering import LoweredGraph, Lowerings
from kernelscope.probes.compiler_steps.fx_stages import FxStages
from kernelscope.probes.cuda_graphs.tree_graphs import LaunchByLaunch
from kernelscope.probes.dynamo.compiled_regions import CompiledRegions
from kernelscope.probes.patching import MovedTarget
from kernelscope.probes.probe_list import PROBES
from kernelscope.shadowing.eager_launches import EagerSession
from kernelscope.store.file_systems import network_of

from .checks import Check, Program
from .gpu_faults import wait_for_gpu
from .outcome import RAISED, Outcome
from .settings import AT_RUN_TIME, AXES, Settings, Switch

OnSwitch = Callable[[Switch], None]


class InProcessTrials:
    """Runs trials of one program in this process."""

    def __init__(self, program: Program, check: Check, caches: Path, *, prints_errors: bool = False) -> None:
        self._prints_errors = prints_errors
        self._program, self._check, self._caches = program, check, caches
        self._binaries = SharedBinaries(caches / "binaries", *caches_of_this_machine())
        self._cache: Path | None = None
        self._open: ExitStack | None = None
        self._settings: Settings | None = None  # of what is compiled now
        self._session: EagerSession | None = None
        self._compiles_each_time = False  # the program, also if it is run again
        self._on_switch: OnSwitch | None = None

    def run(self, settings: Settings, on_switch: OnSwitch | None = None) -> Outcome:
        """One trial; `on_switch` is called for every switch that the program meets."""
        self._on_switch = on_switch
        start = perf_counter()
        try:
            wants_session = self._check.judges or on_switch is not None or _is_of_run_time(settings)
            is_rerun = self._prepare(settings.of_compiler, wants_session=wants_session)
            if is_rerun and self._compiles_each_time:
                torch.compiler.reset()
            graphs = _graphs_compiled()
            if self._session is not None:
                self._session.begin(settings.names("kernel"), settings.names("execution"))
            outcome = self._check.run(self._run_to_its_end, self._session)
            # Left alone, Dynamo would give up after some runs, and what runs in eager does not fail.
            self._compiles_each_time |= is_rerun and _graphs_compiled() > graphs
        except RunError:
            raise
        except MovedTarget as moved:  # ours, not the program's
            raise RunError(str(moved)) from None
        except Exception as error:
            if self._prints_errors:
                traceback.print_exc()
            outcome = Outcome(RAISED, f"{type(error).__name__}: {error}".removesuffix(": "))
        if self._cache is not None:
            self._binaries.keep(self._cache)
        return outcome.lasting(perf_counter() - start)

    def _run_to_its_end(self) -> Any:
        """Wait for the GPU, too: its faults belong to this trial, not to the next one."""
        result = self._program()
        wait_for_gpu()
        return result

    def close(self) -> None:
        opened, self._open, self._settings, self._session = self._open, None, None, None
        self._cache = None
        if opened is not None:
            opened.close()

    def _prepare(self, settings: Settings, *, wants_session: bool) -> bool:
        """Whether the code that is already compiled can be used."""
        is_enough = self._session is not None or not wants_session
        # These switches count graphs, and would go on counting if the program compiled again.
        is_counted = any(switch.axis in _COUNTED for switch in settings.off)
        if settings == self._settings and is_enough and not is_counted:
            return True
        self.close()
        with ExitStack() as stack:
            stack.callback(torch.compiler.reset)
            torch.compiler.reset()
            stack.enter_context(_fresh_cache(self._caches))
            self._cache = _cache_folder()
            _install(stack, self._binaries)
            forced = [(*split(name), value) for name, value in settings.configs.items()]
            _install(stack, ForcedSettings([*forced, *NO_CACHES]))
            if self._check.judges:  # each launch, of which a CUDA graph shows none
                _install(stack, LaunchByLaunch())
            off = {axis: settings.names(axis) for axis in AXES}
            _install(stack, CompilerSwitches(off, settings.backend, self._met))
            if settings.replaces_all:
                _install(stack, LazyKernels())
            if wants_session:
                self._session = self._attach(stack)
            self._open = stack.pop_all()
        self._settings = settings
        return False

    def _attach(self, stack: ExitStack) -> EagerSession:
        session = EagerSession(self._met, judges=self._check.judges)

        def lowered(graph: LoweredGraph) -> None:
            session.lowered(graph)
            self._meet_configs()

        PROBES.acquire(operators=False, strict=True)
        stack.callback(PROBES.release, operators=False)
        _install(stack, Lowerings(lowered))
        if self._check.judges:
            _install(stack, FxStages(session.stage))
            _install(stack, session.results)
            regions = session.regions
            _install(stack, CompiledRegions(regions.compiled, regions.failed, regions.uncompiled))
        BUS.attach(session)
        stack.callback(BUS.detach, session)
        return session

    def _met(self, axis: str, name: str, info: dict[str, Any]) -> None:
        if self._on_switch is not None:
            self._on_switch(Switch(axis, name, info=info))

    def _meet_configs(self) -> None:
        """The configs at this moment, while something is compiled."""
        if self._on_switch is None:
            return
        names = {split(name): name for name in CAUTIOUS}
        values = {names[key]: value for key, value in values_of(names).items()}
        changed = {
            f"{module}.{name}": default
            for module in (INDUCTOR, DYNAMO)  # torch itself sets some of functorch's while it compiles
            for name, default in defaults_of_changed(module).items()
            if not any(word in name for word in _NOT_ABOUT_RESULTS)
        }
        for name, value in switchable(values, changed).items():
            self._on_switch(Switch("config", name, value))


_COUNTED = ("lowering", "fusion", "autotune")
_NOT_ABOUT_RESULTS = (
    "cache", "trace", "debug", "log", "verbose", "compile_threads", "worker", "cxx", "profil",
)  # fmt: skip


def _is_of_run_time(settings: Settings) -> bool:
    return any(switch.axis in AT_RUN_TIME for switch in settings.off)


def _graphs_compiled() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _install(stack: ExitStack, probe: Any) -> None:
    stack.callback(probe.remove)
    missing = probe.install()
    if missing:
        raise RunError("; ".join(missing))


def _fresh_cache(folder: Path) -> Any:
    """An empty cache of our own; precompiled headers are kept elsewhere, and shared."""
    utils = importlib.import_module("torch._inductor.utils")
    return utils.fresh_cache(dir=str(folder))


def caches_of_this_machine() -> list[Path]:
    """The program's own cache, unless other kinds of processors may have built what lies there, too."""
    folder = _cache_folder()
    return [] if network_of(folder) else [folder]


def _cache_folder() -> Path:
    return Path(importlib.import_module("torch._inductor.runtime.cache_dir_utils").cache_dir())
