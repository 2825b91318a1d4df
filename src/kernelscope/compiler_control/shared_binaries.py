"""Shared libraries of C++ kernels that need not be built, because another cache has them.

Each trial has an empty cache of graphs and of generated code. A library is named after its source and the
compiler's flags, so one of the same name, from another trial or from the failing program, is the same, if
it was built on the same kind of processor: -march=native is one of the flags.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernelscope.native.compiler import processor_name
from kernelscope.probes.patching import Patch, PatchSet

_BUILD = "torch._inductor.codecache:_worker_compile_cpp"


class SharedBinaries(PatchSet):
    """Copies libraries that were built for this processor, from folders in the layout of Inductor's cache.

    `kept` has those of earlier trials, for each kind of processor; in the others there must be one kind.
    """

    def __init__(self, kept: Path, *others: Path) -> None:
        self._kept = kept / processor_name()
        self._folders = (self._kept, *others)
        super().__init__(Patch(_BUILD, self._around))

    def keep(self, cache: Path) -> None:
        """Copy a trial's libraries, for the next ones."""
        for path in cache.glob("*/*.so"):
            kept = self._kept / path.relative_to(cache)
            if not kept.exists():
                copy_whole(path, kept)

    def _around(self, original: Callable[..., None]) -> Callable[..., None]:
        def build(lock: str, builders: Sequence[Any]) -> None:
            target = Path(builders[-1].get_target_file_path())  # what the others make goes into it
            self._copy(target)
            # Also for a library that exists: it waits for the lock of a process that is still writing it.
            original(lock, builders[-1:] if target.exists() else builders)

        return build

    def _copy(self, target: Path) -> None:
        for folder in self._folders:
            found = folder / target.parent.name / target.name
            if not target.exists() and found.is_file():
                copy_whole(found, target)


def copy_whole(source: Path, target: Path) -> None:
    """Unless it is being written, or cannot be read: then it is built, as it would be without this.

    A copy, so that two trials in one process do not share what a library keeps between launches.
    """
    lock = source.parent.parent / "locks" / f"{source.name.partition('.')[0]}.lock"
    with suppress(OSError), _held(lock):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        shutil.copyfile(source, partial)
        partial.chmod(0o755)
        partial.rename(target)  # atomic: another process may read it


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Raises OSError if a process holds this lock to write; creates no file."""
    import fcntl

    try:
        file = lock.open("rb")
    except FileNotFoundError:  # it exists during a build, and longer in old versions
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
