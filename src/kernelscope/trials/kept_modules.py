"""The modules beside a script are executed again in each run, in the same objects and from the same code.

Dynamo keeps what it has compiled with a function's code, and in the names of its module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from .kept_classes import KeptClasses


class KeptModules(MetaPathFinder):
    """Finds the modules whose files `is_own` names, and loads them into the objects that it knows."""

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._kept: dict[str, _Loader] = {}
        # Packages that are there before the program: we, and torch, wherever they were installed.
        self._libraries = {name.partition(".")[0] for name in sys.modules}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """During one run; afterwards they have to be imported again."""
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in self._kept:
                sys.modules.pop(name, None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._libraries:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if (
            found is None
            or type(found.loader) is not SourceFileLoader
            or not self._is_own(found.origin or "")
        ):
            return None
        loader = self._kept.get(fullname)
        if loader is None or loader.path != found.loader.path:
            loader = self._kept[fullname] = _Loader(fullname, found.loader.path)
        found.loader = loader
        return found


class _Loader(SourceFileLoader):
    """Of one module."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self._module: ModuleType | None = None
        self._code: CodeType | None = None
        self._classes: KeptClasses | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        names = vars(module)
        if self._code is None or self._classes is None:
            self._module, self._code = module, self.get_code(module.__name__)
            self._classes = KeptClasses(names)
        assert self._code is not None
        clear(names)
        with self._classes.kept():
            exec(self._code, names)


def clear(names: dict[str, Any]) -> None:
    """All but Dynamo's own names, which compiled code needs: they begin with two underscores."""
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
