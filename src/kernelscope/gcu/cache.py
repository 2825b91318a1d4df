"""Compiled kernels, kept on disk from one process to the next.

A file is named by the hash of all that went into it, written under another name and moved into place, and
ends with a hash of its own content: a truncated or damaged one is compiled anew.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelscope import config
from kernelscope.fingerprint.cpu import check_private

_DIGEST = hashlib.sha256().digest_size


def folder() -> Path:
    """Where they are kept; OSError when that is no place for code."""
    path = config.cache_folder() / "gcu"
    check_private(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def cached(key: str, make: Callable[[Path], Path]) -> tuple[Path, str]:
    """The library for a key, made by `make(folder)` if it is not there; and why it was not kept, if so."""
    try:
        place = folder()
    except OSError as error:
        return _unkept(make), f"the cache folder cannot be used: {error}"
    library = place / f"{key}.so"
    if intact(library):
        return library, ""
    try:
        with tempfile.TemporaryDirectory(prefix="making-", dir=place) as temporary:
            made = make(Path(temporary))
            with made.open("ab") as file:
                file.write(hashlib.sha256(made.read_bytes()).digest())
            made.chmod(0o700)
            made.replace(library)
    except OSError as error:
        return _unkept(make), f"the cache folder {place} cannot be written: {error}"
    return library, ""


def _unkept(make: Callable[[Path], Path]) -> Path:
    return make(Path(tempfile.mkdtemp(prefix="kernelscope-gcu-")))


def intact(library: Path) -> bool:
    """Whether a file is what was written, by us: loading a damaged one can kill the process."""
    try:
        data = library.read_bytes()
        own = library.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return own and len(data) > _DIGEST and hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]
