"""Shared libraries of C++ kernels that need not be built, because another cache has them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .patching import Patch

_BUILD = "torch._inductor.codecache:_worker_compile_cpp"


class SharedBinaries:
    """The probe: what stands in one of these folders, in the layout of Inductor's cache, is copied.

    A library is named after its source and the compiler's flags, so one of the same name is the same.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._patch = Patch(_BUILD, self._around)

    def install(self) -> None:
        self._patch.install()

    def remove(self) -> None:
        self._patch.remove()

    def _around(self, original: Callable[..., None]) -> Callable[..., None]:
        def build(lock: str, builders: Sequence[Any]) -> None:
            if not self._has(Path(builders[-1].get_target_file_path())):  # the others make what goes into it
                original(lock, builders)

        return build

    def _has(self, target: Path) -> bool:
        if target.exists():
            return True
        for folder in self._folders:
            found = folder / target.parent.name / target.name
            if found.is_file():
                copy_at_once(found, target)
                return True
        return False


def copy_at_once(source: Path, target: Path) -> None:
    """A copy: two trials in one process shall not share what a library keeps between launches."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    shutil.copyfile(source, partial)
    partial.chmod(0o755)
    partial.rename(target)  # another process may be looking
