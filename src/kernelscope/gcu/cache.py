"""Compiled kernels, kept on disk from one process to the next.

A file is named by the hash of all that went into it, written under another name and moved into place, and
ends with a hash of its own content: a truncated or damaged one is compiled anew.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelscope import config
from kernelscope.fingerprint.cpu.engine import check_private


@dataclass(frozen=True)
class Library:
    """A compiled program."""

    path: Path
    is_cached: bool = False  # it was there already
    uncached: str = ""  # why it was not kept, if it was not


_said: set[str] = set()  # reasons that were printed
_DIGEST = hashlib.sha256().digest_size


def folder() -> Path:
    """Where they are kept; OSError when that is no place for code."""
    path = config.cache_folder() / "gcu"
    check_private(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def cached(key: str, make: Callable[[Path], Path]) -> Library:
    """The library for a key, made by `make(folder)` if it is not there, or is not to be used."""
    try:
        place = folder()
    except OSError as error:
        return _unkept(make, f"the cache folder cannot be used: {error}")
    library = place / f"{key}.so"
    if not is_fresh() and intact(library):
        return Library(library, is_cached=True)
    try:
        with tempfile.TemporaryDirectory(prefix="making-", dir=place) as temporary:
            made = make(Path(temporary))
            with made.open("ab") as file:
                file.write(hashlib.sha256(made.read_bytes()).digest())
            made.chmod(0o700)
            made.replace(library)
    except OSError as error:
        return _unkept(make, f"the cache folder {place} cannot be written: {error}")
    return Library(library)


def is_fresh() -> bool:
    """Whether torch was told to compile everything anew: torch.compiler.config.force_disable_caches."""
    from torch.compiler import config as compiler

    return bool(getattr(compiler, "force_disable_caches", False))


def _unkept(make: Callable[[Path], Path], why: str) -> Library:
    """Made in a temporary folder, for this process alone."""
    if why not in _said:
        _said.add(why)
        print(
            f"kernelscope: gcu kernels are compiled again in each process: {why}; "
            "set XDG_CACHE_HOME to a folder that only you can write to",
            file=sys.stderr,
        )
    return Library(make(Path(tempfile.mkdtemp(prefix="kernelscope-gcu-"))), uncached=why)


def intact(library: Path) -> bool:
    """Whether a file is what was written, by us: loading a damaged one can kill the process."""
    try:
        data = library.read_bytes()
        own = library.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return own and len(data) > _DIGEST and hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]
