"""Torch's configs: what a recording of stages needs of them, and what a program has changed in them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from kernelscope.config import compiler_variables

_INDUCTOR, _AUTOGRAD = "torch._inductor.config", "torch._functorch.config"
_MODULES = (_INDUCTOR, "torch._dynamo.config", _AUTOGRAD, "torch.compiler.config")
# Inductor then writes beside each launch which kernel it is. Its cache tells graphs with and without apart,
# so that a graph which was cached without is compiled again.
_PROVENANCE = (_INDUCTOR, "trace.provenance_tracking_level", 1)
NO_CACHES = (
    (_INDUCTOR, "fx_graph_cache", False),
    (_INDUCTOR, "fx_graph_remote_cache", False),
    (_AUTOGRAD, "enable_autograd_cache", False),
    (_AUTOGRAD, "enable_remote_autograd_cache", False),
)
_forced: set[tuple[str, str]] = set()  # by us, at this moment


class ForcedSettings:
    """Changes of torch's configs that hold whatever a program sets itself, on every thread.

    A value that is set on a config holds for one thread; backward graphs are compiled on another. So a value
    is set where a variable of the environment would have put it, which holds for all of them.
    """

    def __init__(self, settings: Iterable[tuple[str, str, Any]] = ()) -> None:
        self._settings = tuple(settings)
        self._before: list[tuple[Any, str, str, Any]] = []

    @property
    def settings(self) -> tuple[tuple[str, str, Any], ...]:
        return self._settings

    def install(self) -> list[str]:
        """Returns what could not be set."""
        missing = []
        for module, name, value in self.settings:
            try:
                config: Any = import_module(module)
                before = config._config[name].env_value_force
            except (ImportError, AttributeError, KeyError):
                missing.append(f"{module}.{name} cannot be set in this torch")
                continue
            self._before.append((config, module, name, before))
            _force(config, name, value)
            _forced.add((module, name))
        return missing

    def remove(self) -> None:
        while self._before:
            config, module, name, before = self._before.pop()
            _force(config, name, before)
            _forced.discard((module, name))


class CompileSettings(ForcedSettings):
    """What a recording of stages needs."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh = False  # graphs are not taken from caches

    @property
    def settings(self) -> tuple[tuple[str, str, Any], ...]:
        return (_PROVENANCE, *(NO_CACHES if self.fresh else ()))


def _force(config: Any, name: str, value: Any) -> None:
    config._config[name].env_value_force = value
    mark = getattr(config, "_mark_get_dict_dirty", None)  # this thread's copy of all settings is out of date
    if mark is not None:
        mark(name)


def changed_settings() -> dict[str, dict[str, Any]]:
    """Every setting that is not as torch ships it, by module, and every variable that is meant for torch."""
    found = {name: _changed_in(name) for name in _MODULES if name in sys.modules}
    found["torch"] = _changed_in_torch()
    found["environment"] = dict(compiler_variables())
    return {name: values for name, values in found.items() if values}


def _changed_in(module: str) -> dict[str, Any]:
    try:
        return _changed_entries(module)
    except (AttributeError, ImportError) as error:  # another torch keeps them in another way
        return {"(cannot be read)": str(error)}


def _changed_entries(module: str) -> dict[str, Any]:
    changed = {}
    for name, entry in getattr(sys.modules[module], "_config", {}).items():
        if (module, name) in _forced or getattr(entry, "alias", None) is not None:
            continue
        value = _value(entry)
        if value is not entry.default and not _same(value, entry.default):
            changed[name] = _plain(value)
    return changed


def values_of(names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Any]:
    """What these settings are now; one that this torch does not have is left out."""
    found = {}
    for module, name in names:
        entry = getattr(import_module(module), "_config", {}).get(name)
        if entry is not None:
            found[module, name] = _value(entry)
    return found


def defaults_of_changed(module: str) -> dict[str, Any]:
    """The defaults of all that a program has set, where these can be written down."""
    entries: dict[str, Any] = getattr(sys.modules[module], "_config", {})
    changed = {name: entries[name].default for name in _changed_entries(module)}
    return {n: v for n, v in changed.items() if v is None or isinstance(v, bool | int | float | str)}


def _value(entry: Any) -> Any:
    """As torch looks it up, without making a copy of a default as that does."""
    override = entry.user_override
    override = override.get() if isinstance(override, ContextVar) else override
    for value in (entry.env_value_force, override, entry.env_value_default):
        if not _is_unset(value):
            return value
    return entry.default


def _is_unset(value: Any) -> bool:
    from torch.utils._config_module import _UNSET_SENTINEL

    return value is _UNSET_SENTINEL


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return False


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else repr(value)[:500]


def _changed_in_torch() -> dict[str, Any]:
    import torch

    now = {
        "default_dtype": (str(torch.get_default_dtype()), "torch.float32"),
        "float32_matmul_precision": (torch.get_float32_matmul_precision(), "highest"),
        "deterministic_algorithms": (torch.are_deterministic_algorithms_enabled(), False),
        "cudnn.benchmark": (torch.backends.cudnn.benchmark, False),
        "cudnn.deterministic": (torch.backends.cudnn.deterministic, False),
        "anomaly_detection": (torch.is_anomaly_enabled(), False),
    }
    return {name: value for name, (value, default) in now.items() if value != default}
