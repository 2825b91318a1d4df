"""Torch's configs, observed: which settings a program has changed, and what they are now."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextvars import ContextVar
from copy import deepcopy
from importlib import import_module
from typing import Any

from kernelscope.config import compiler_variables

INDUCTOR, AUTOGRAD = "torch._inductor.config", "torch._functorch.config"
_MODULES = (INDUCTOR, "torch._dynamo.config", AUTOGRAD, "torch.compiler.config")
# Settings that kernelscope itself forces at this moment: these are not changes of the program.
FORCED: set[tuple[str, str]] = set()


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
        if (module, name) in FORCED or getattr(entry, "alias", None) is not None:
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
    return _first_set(entry, entry.env_value_force)


def set_value(entry: Any, forced: Any) -> Any:
    """What a setting would be if this value were forced on it; a default is copied, as torch does."""
    value = _first_set(entry, forced)
    return deepcopy(value) if value is entry.default else value


def _first_set(entry: Any, forced: Any) -> Any:
    override = entry.user_override
    override = override.get() if isinstance(override, ContextVar) else override
    for value in (forced, override, entry.env_value_default):
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
