"""Compiled C++ that trials share.

Each trial has an empty cache of graphs and of generated code. A shared library is named after its source and
the compiler's flags alone, so one that another trial built from the very same text need not be built again,
nor one that the program itself had built when it failed.
"""

from __future__ import annotations

from pathlib import Path

from kernelscope.compiler_control.shared_binaries import SharedBinaries, copy_whole


class Binaries:
    """A folder of shared libraries, in the layout of Inductor's cache."""

    def __init__(self, folder: Path, programs_own: Path) -> None:
        self._folder = folder
        self._folders = (folder, programs_own)

    def probe(self) -> SharedBinaries:
        """To be installed while a trial compiles."""
        return SharedBinaries(self._folders)

    def take_from(self, cache: Path) -> None:
        for path in cache.glob("*/*.so"):
            kept = self._folder / path.relative_to(cache)
            if not kept.exists():
                copy_whole(path, kept)
