"""Settings of torch's compiler that hold on every thread, whatever the program sets itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kernelscope.probes.compilation.compile_settings import AUTOGRAD, FORCED, INDUCTOR, set_value
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


# By module and name: the value before all of them, and who forces which value, the newest last. Blocks of
# several threads overlap, and may end in any order.
_HELD: dict[tuple[str, str], tuple[Any, list[tuple[object, Any]]]] = {}
_lock = threading.RLock()

# Functions that save a setting in order to set it again, by module and name: `config.patch` and `mock.patch`.
# They are shown what the program has set. A forced value that they saved would be set as the program's own
# when they end, and stay. A program that saves a setting by reading it saves the forced value.
_SAVE = {("torch.utils._config_module", "__enter__"), ("unittest.mock", "get_original")}


def _as_set_for_savers(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def __getattr__(config: Any, name: str) -> Any:
        held = _HELD.get((config.__name__, name))
        if held is not None and _is_saved():
            return set_value(config._config[name], held[0])
        return read(config, name)

    return __getattr__


def _is_saved() -> bool:
    frame = sys._getframe(2)
    if frame.f_code.co_name == "__getattr__" and frame.f_back is not None:  # of `config.cpp` and the like
        frame = frame.f_back
    return (frame.f_globals.get("__name__", ""), frame.f_code.co_name) in _SAVE


_READS = Patch("torch.utils._config_module:ConfigModule.__getattr__", _as_set_for_savers)


class ForcedSettings:
    """Forces settings while it is installed.

    A value that is set on a config holds for one thread, and backward graphs are compiled on another. So a
    value is set where a variable of the environment would have put it, which holds for all of them.
    """

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._settings = tuple(settings)
        self._forced: list[tuple[Any, str]] = []

    def install(self) -> list[str]:
        """Returns what could not be set."""
        missing = []
        for module, name, value in self._settings:
            try:
                config: Any = import_module(module)
                entry = config._config[name]
                with _lock:
                    held = _HELD.get((module, name), (entry.env_value_force, []))
                    if not _HELD:
                        _READS.install()
                    held[1].append((self, value))
                    _HELD[module, name] = held
                    _force(config, name, value)
                    FORCED.add((module, name))
            except (ImportError, AttributeError, KeyError):
                missing.append(f"{module}.{name} cannot be set in this torch")
                continue
            self._forced.append((config, name))
        return missing

    def remove(self) -> None:
        while self._forced:
            config, name = self._forced.pop()
            with _lock:
                before, holders = _HELD[config.__name__, name]
                holders.remove(next(holder for holder in reversed(holders) if holder[0] is self))
                _force(config, name, holders[-1][1] if holders else before)
                if not holders:
                    del _HELD[config.__name__, name]
                    FORCED.discard((config.__name__, name))
                if not _HELD:
                    _READS.remove()


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
        # A remote cache that this torch does not have cannot be used either.
        missing = [each for each in forced.install() if "_remote_" not in each]
        if missing:
            raise RuntimeError(f"caches cannot be turned off: {'; '.join(missing)}")
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
        """A forked child does not record; another thread of its parent may have held the locks."""
        global _lock
        _lock = threading.RLock()
        self._users, self._lock = 0, threading.Lock()
        self._restore()

    def _restore(self) -> None:
        self._gcu_cache.remove()
        self._forced.remove()


STAGE_SETTINGS = StageSettings()
