"""Compiled kernels, kept on disk from one process to the next."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelscope.native.library_cache import build_into, cache_folder, is_intact, why_unusable


@dataclass(frozen=True)
class Library:
    """A compiled program."""

    path: Path
    is_cached: bool = False  # it was there already
    uncached: str = ""  # why it was not kept, if it was not


_printed: set[str] = set()  # reasons


def cached(key: str, build: Callable[[Path], Path]) -> Library:
    """The library for a key, made by `build(folder)` if it is not there, or is not to be used."""
    try:
        folder = cache_folder() / "gcu"
        folder.mkdir(mode=0o700, exist_ok=True)
        library = folder / f"{key}.so"
        if not is_fresh() and is_intact(library):
            return Library(library, is_cached=True)
        build_into(library, build)
        return Library(library)
    except OSError as error:
        return _built_for_this_process(build, why_unusable(error))


def is_fresh() -> bool:
    """Whether torch is set to ignore caches: torch.compiler.config.force_disable_caches."""
    from torch.compiler import config as compiler

    return bool(getattr(compiler, "force_disable_caches", False))


def _built_for_this_process(build: Callable[[Path], Path], why: str) -> Library:
    if why not in _printed:
        _printed.add(why)
        print(
            f"kernelscope: gcu kernels are compiled again in each process: {why}; "
            "set XDG_CACHE_HOME to a folder that only you can write to",
            file=sys.stderr,
        )
    return Library(build(Path(tempfile.mkdtemp(prefix="kernelscope-gcu-"))), uncached=why)
