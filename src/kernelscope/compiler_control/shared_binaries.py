"""Shared libraries of C++ kernels that need not be built, because another cache has them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernelscope.probes.patching import Patch, PatchSet

_BUILD = "torch._inductor.codecache:_worker_compile_cpp"


class SharedBinaries(PatchSet):
    """The probe: what stands in one of these folders, in the layout of Inductor's cache, is copied.

    A library is named after its source and the compiler's flags, so one of the same name is the same.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        super().__init__(Patch(_BUILD, self._around))

    def _around(self, original: Callable[..., None]) -> Callable[..., None]:
        def build(lock: str, builders: Sequence[Any]) -> None:
            target = Path(builders[-1].get_target_file_path())  # what the others make goes into it
            self._bring(target)
            # Asked also about what is there: who is still writing it has locked it.
            original(lock, builders[-1:] if target.exists() else builders)

        return build

    def _bring(self, target: Path) -> None:
        for folder in self._folders:
            found = folder / target.parent.name / target.name
            if not target.exists() and found.is_file():
                copy_whole(found, target)


def copy_whole(source: Path, target: Path) -> None:
    """Not what is being written, nor what cannot be read: that is built, as it would be without this.

    A copy: two trials in one process shall not share what a library keeps between launches.
    """
    lock = source.parent.parent / "locks" / f"{source.name.partition('.')[0]}.lock"
    with suppress(OSError), _held(lock):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        shutil.copyfile(source, partial)
        partial.chmod(0o755)
        partial.rename(target)  # at once: another process may be looking


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Nobody writes what this file locks; an OSError if somebody does. No file is made for it."""
    import fcntl

    try:
        file = lock.open("rb")
    except FileNotFoundError:  # it is there for as long as somebody builds, and longer in old versions
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
