"""Do something once a module has been imported. Imports nothing of the program itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[], None]
Load = Callable[[Callable[[Any], None], Any], None]  # with what executes a module, and the module


def after_import(name: str, action: Action) -> None:
    """Now, if the module is there; else once it has been imported."""
    if name in sys.modules:
        action()
        return
    for finder in sys.meta_path:
        if type(finder) is AfterImport and finder.add(name, action):
            return
    sys.meta_path.insert(0, AfterImport(name, action))


class AfterImport:
    """A finder that asks all others for one module, and acts when that module has been loaded.

    It stays in `sys.meta_path` and then does nothing: taking it out while another thread looks for a module
    would make that thread skip a finder.
    """

    def __init__(self, name: str, action: Action) -> None:
        self._name = name
        self._actions = [action]
        self._is_over = False
        self._loading = 0  # by a loader that tells when it is done
        self._moves = 8
        self._lock = threading.Lock()
        self._here = threading.local()

    def add(self, name: str, action: Action) -> bool:
        """Whether it waits for that module and will do this as well."""
        with self._lock:
            waits = name == self._name and not self._is_over
            if waits:
                self._actions.append(action)
            return waits

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if self._is_over:
            return None
        if self._moves and sys.meta_path and type(sys.meta_path[0]) is not AfterImport:
            self._moves -= 1  # not for ever: the other one may insist on being first, too
            sys.meta_path.insert(0, self)  # a finder in front could find the module first
        if getattr(self._here, "is_asking", False) or not (name == self._name or self._is_loaded_unseen()):
            return None
        spec = self._ask_the_others(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if spec is not None and type(loader) is not WatchedLoader and hasattr(loader, "exec_module"):
            spec.loader = WatchedLoader(loader, partial(self._load, name))  # type: ignore[assignment]
        return spec

    def _is_loaded_unseen(self) -> bool:
        """A finder in front of this one has found the module: it acts when the next one has been loaded."""
        module = sys.modules.get(self._name)
        is_lazy = type(module).__getattribute__ is not ModuleType.__getattribute__  # a look would load it
        if self._loading or is_lazy:
            return False
        spec = getattr(module, "__spec__", None)  # None: a stand-in of the program
        return isinstance(spec, ModuleSpec) and not getattr(spec, "_initializing", False)

    def _ask_the_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        self._here.is_asking = True  # one of them may ask all others, too
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find is not None and finder is not self else None
                if spec is not None:
                    return spec  # type: ignore[no-any-return]
            return None
        finally:
            self._here.is_asking = False

    def _load(self, name: str, execute: Callable[[Any], None], module: Any) -> None:
        self._loading += (is_awaited := name == self._name)
        try:
            execute(module)
        finally:
            self._loading -= is_awaited
        self._loaded()

    def _loaded(self) -> None:
        if self._name not in sys.modules:  # a module that was made from the spec, beside the real one
            return
        with self._lock:
            self._is_over = True
            actions, self._actions = self._actions, []
        for action in actions:
            action()


class WatchedLoader:
    """Another loader; what it is given executes the module and sees the end of that.

    A look-up alone (`importlib.util.find_spec`) shows it to the program, so it looks like the other loader
    in all else. A module that is loaded has the other loader itself.
    """

    __slots__ = ("_kernelscope_load", "_kernelscope_loader")

    def __init__(self, loader: Any, load: Load) -> None:
        object.__setattr__(self, "_kernelscope_loader", loader)
        object.__setattr__(self, "_kernelscope_load", load)

    def exec_module(self, module: Any) -> None:
        loader, spec = self._kernelscope_loader, getattr(module, "__spec__", None)
        if spec is not None and spec.loader is self:
            spec.loader = loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = loader
        self._kernelscope_load(loader.exec_module, module)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._kernelscope_loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernelscope_loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._kernelscope_loader, name, value)

    def __eq__(self, other: object) -> bool:
        return bool(self._kernelscope_loader == other)

    def __hash__(self) -> int:
        return hash(self._kernelscope_loader)

    def __repr__(self) -> str:
        return repr(self._kernelscope_loader)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._kernelscope_loader.__reduce_ex__(protocol)
