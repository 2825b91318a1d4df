"""Runs trials in this process.

What was compiled stays as long as only run-time switches change; as soon as the compiler has to do something
else, everything is compiled anew, in an empty cache of its own: Inductor's key does not see our switches.
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

from kernelscope.bisection.config_choices import CAUTIOUS, DYNAMO, INDUCTOR, candidates, split
from kernelscope.compiler_control.forced_settings import NO_CACHES, ForcedSettings
from kernelscope.compiler_control.lazy_kernels import LazyKernels
from kernelscope.compiler_control.switches import CompilerSwitches
from kernelscope.errors import RunError
from kernelscope.probes import PROBES
from kernelscope.probes.bus import BUS
from kernelscope.probes.compilation.compile_settings import defaults_of_changed, values_of
from kernelscope.probes.compilation.fx_stages import FxStages
from kernelscope.probes.compilation.lowering import LoweredGraph, Lowerings
from kernelscope.probes.patching import MovedTarget
from kernelscope.shadowing.eager_launches import EagerSession

from .binaries import Binaries
from .failure_conditions import Condition, Program
from .gpu_faults import wait_for_gpu
from .settings import AT_RUN_TIME, AXES, RAISED, Outcome, Settings, Switch

Tell = Callable[[Switch], None]


class Engine:
    """One process that runs trials of one program."""

    def __init__(
        self, program: Program, condition: Condition, caches: Path, *, prints_errors: bool = False
    ) -> None:
        self._prints_errors = prints_errors
        self._program, self._condition, self._caches = program, condition, caches
        self._binaries = Binaries(caches / "binaries", _cache_folder())
        self._cache: Path | None = None
        self._open: ExitStack | None = None
        self._settings: Settings | None = None  # of what is compiled now
        self._session: EagerSession | None = None
        self._compiles_each_time = False  # the program, also if it is run again
        self._tell: Tell = lambda switch: None

    def run(self, settings: Settings, tell: Tell | None = None) -> Outcome:
        """One trial; `tell` hears of every switch that is met."""
        self._tell = tell or (lambda switch: None)
        start = perf_counter()
        try:
            wants_session = self._condition.judges or tell is not None or _is_of_run_time(settings)
            is_rerun = self._prepare(settings.of_compiler, wants_session=wants_session)
            if is_rerun and self._compiles_each_time:
                torch._dynamo.reset()
            graphs = _graphs_compiled()
            if self._session is not None:
                self._session.begin(settings.names("kernel"), settings.names("execution"))
            outcome = self._condition.check(self._run_to_its_end, self._session)
            # Left alone, Dynamo would give up after some runs, and what runs in eager does not fail.
            self._compiles_each_time |= is_rerun and _graphs_compiled() > graphs
        except RunError:
            raise
        except MovedTarget as moved:  # ours, not the program's
            raise RunError(str(moved)) from None
        except Exception as error:
            if self._prints_errors:
                traceback.print_exc()
            outcome = Outcome(RAISED, f"{type(error).__name__}: {error}")
        if self._cache is not None:
            self._binaries.take_from(self._cache)
        return Outcome(outcome.kind, outcome.what, outcome.details, perf_counter() - start)

    def _run_to_its_end(self) -> Any:
        """Also what it has left to a GPU: that fails here, rather than in another trial."""
        made = self._program()
        wait_for_gpu()
        return made

    def close(self) -> None:
        opened, self._open, self._settings, self._session = self._open, None, None, None
        self._cache = None
        if opened is not None:
            opened.close()

    def _prepare(self, settings: Settings, *, wants_session: bool) -> bool:
        """Whether what is compiled will do."""
        is_enough = self._session is not None or not wants_session
        # Switches that count graphs would count on if the program compiles again: it has to start anew.
        is_counted = any(switch.axis in _COUNTED for switch in settings.off)
        if settings == self._settings and is_enough and not is_counted:
            return True
        self.close()
        with ExitStack() as stack:
            stack.callback(torch._dynamo.reset)
            torch._dynamo.reset()
            stack.enter_context(_fresh_cache(self._caches))
            self._cache = _cache_folder()
            _install(stack, self._binaries.probe())
            forced = [(*split(name), value) for name, value in settings.configs.items()]
            _install(stack, ForcedSettings([*forced, *NO_CACHES]))
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
        session = EagerSession(self._met, judges=self._condition.judges)

        def lowered(graph: LoweredGraph) -> None:
            session.lowered(graph)
            self._meet_configs()

        PROBES.acquire(operators=False, strict=True)
        stack.callback(PROBES.release, operators=False)
        _install(stack, Lowerings(lowered))
        if self._condition.judges:
            _install(stack, FxStages(session.stage))
            _install(stack, session.results)
        BUS.attach(session)
        stack.callback(BUS.detach, session)
        return session

    def _met(self, axis: str, name: str, info: dict[str, Any]) -> None:
        self._tell(Switch(axis, name, info=info))

    def _meet_configs(self) -> None:
        """What the settings are at this moment, while something is compiled."""
        names = {split(name): name for name in CAUTIOUS}
        values = {names[key]: value for key, value in values_of(names).items()}
        changed = {
            f"{module}.{name}": default
            for module in (INDUCTOR, DYNAMO)  # torch itself sets some of functorch's while it compiles
            for name, default in defaults_of_changed(module).items()
            if not any(word in name for word in _NOT_ABOUT_RESULTS)
        }
        for name, value in candidates(values, changed).items():
            self._tell(Switch("config", name, value))


_COUNTED = ("lowering", "fusion", "autotune")
_NOT_ABOUT_RESULTS = (
    "cache",
    "trace",
    "debug",
    "log",
    "verbose",
    "compile_threads",
    "worker",
    "cxx",
    "profil",
)


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


def _cache_folder() -> Path:
    return Path(importlib.import_module("torch._inductor.runtime.cache_dir_utils").cache_dir())
