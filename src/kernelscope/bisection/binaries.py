"""Compiled C++ that trials share.

Each trial has an empty cache of graphs and of generated code. A shared library is named after its source and
the compiler's flags alone, so one that another trial built from the very same text need not be built again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class Binaries:
    """A folder of shared libraries, in the layout of Inductor's cache."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put_into(self, cache: Path) -> None:
        # Copies: two trials in one process shall not share what a library keeps between launches.
        for path in self._folder.glob("*/*.so"):
            target = cache / path.relative_to(self._folder)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o755)

    def take_from(self, cache: Path) -> None:
        for path in cache.glob("*/*.so"):
            kept = self._folder / path.relative_to(cache)
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                partial = kept.with_suffix(f".{os.getpid()}")
                shutil.copyfile(path, partial)
                partial.rename(kept)  # at once: another process may be looking
