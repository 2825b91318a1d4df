"""Settings of torch's compiler that hold on every thread, whatever the program sets itself."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kernelscope.probes.compilation.compile_settings import AUTOGRAD, FORCED, INDUCTOR
from kernelscope.probes.patching import Patch

Setting = tuple[str, str, Any]  # module, name, value

NO_CACHES: tuple[Setting, ...] = (
    (INDUCTOR, "fx_graph_cache", False),
    (INDUCTOR, "fx_graph_remote_cache", False),
    (AUTOGRAD, "enable_autograd_cache", False),
    (AUTOGRAD, "enable_remote_autograd_cache", False),
)
# Inductor then writes beside each launch which kernel it is. Its cache keys graphs by it,
# so a graph that was cached without is compiled again.
_PROVENANCE: Setting = (INDUCTOR, "trace.provenance_tracking_level", 1)


class ForcedSettings:
    """Forces settings while it is installed.

    A value that is set on a config holds for one thread, and backward graphs are compiled on another. So a
    value is set where a variable of the environment would have put it, which holds for all of them.
    """

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._settings = tuple(settings)
        self._before: list[tuple[Any, str, Any, bool]] = []

    def install(self) -> list[str]:
        """Returns what could not be set."""
        missing = []
        for module, name, value in self._settings:
            try:
                config: Any = import_module(module)
                before = config._config[name].env_value_force
            except (ImportError, AttributeError, KeyError):
                missing.append(f"{module}.{name} cannot be set in this torch")
                continue
            self._before.append((config, name, before, (module, name) in FORCED))
            _force(config, name, value)
            FORCED.add((module, name))
        return missing

    def remove(self) -> None:
        while self._before:
            config, name, before, was_forced = self._before.pop()
            _force(config, name, before)
            if not was_forced:
                FORCED.discard((config.__name__, name))


def _force(config: Any, name: str, value: Any) -> None:
    config._config[name].env_value_force = value
    mark = getattr(config, "_mark_get_dict_dirty", None)  # this thread's copy of all settings is out of date
    if mark is not None:
        mark(name)


@contextmanager
def without_caches(**inductor: Any) -> Iterator[None]:
    """Every graph is compiled inside, none is loaded from a cache; `inductor` forces further settings."""
    forced = ForcedSettings([*NO_CACHES, *((INDUCTOR, name, value) for name, value in inductor.items())])
    try:
        forced.install()
        yield
    finally:
        forced.remove()


class StageSettings:
    """What recordings of stages force, from the first that opens until the last has closed."""

    def __init__(self) -> None:
        self.is_fresh = False  # no graph is loaded from a cache
        self._users = 0
        self._missing: list[str] = []
        self._forced = ForcedSettings(())
        self._gcu_cache = Patch("kernelscope.gcu.cache:is_fresh", lambda _: lambda: True)
        self._lock = threading.Lock()

    def acquire(self, *, fresh: bool) -> list[str]:
        """Returns what could not be set."""
        with self._lock:
            if self._users == 0:
                self.is_fresh = fresh
                self._forced = ForcedSettings([_PROVENANCE, *(NO_CACHES if fresh else ())])
                self._missing = self._forced.install()
                if fresh:
                    self._gcu_cache.install()
            self._users += 1
            return self._missing

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._restore()

    def forget_in_child(self) -> None:
        """A forked child does not record."""
        self._users, self._lock = 0, threading.Lock()
        self._restore()

    def _restore(self) -> None:
        self._gcu_cache.remove()
        self._forced.remove()


STAGE_SETTINGS = StageSettings()
