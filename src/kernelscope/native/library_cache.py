"""Built libraries, kept on disk from one process to the next.

A file is named by the hash of everything that went into it, built under another name and moved into place, so
that processes may build the same one at once. It ends with a hash of its own content: a truncated or damaged
one is built again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelscope import config

_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path:
    """The folder for libraries; OSError when it cannot be used."""
    folder = config.cache_folder()
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Create the folder if need be; PermissionError when others could put code into it, or none can run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise PermissionError(f"nothing can be executed in {folder}: it is mounted with noexec")
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"other users can write to {folder}; run: chmod go-w {folder}")
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(f"other users can replace {folder}, because they can write to {parent}")


def why_unusable(error: OSError) -> str:
    """Why the folder for libraries cannot be used, as a sentence."""
    what = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
    return f"the cache folder cannot be used: {what}"


def build_into(library: Path, build: Callable[[Path], Path]) -> None:
    """Write the library whole or not at all; `build` makes it in the folder that it is given."""
    with tempfile.TemporaryDirectory(prefix="building-", dir=library.parent) as temporary:
        built = build(Path(temporary))
        with built.open("ab") as file:
            file.write(hashlib.sha256(built.read_bytes()).digest())
        built.chmod(0o700)
        built.replace(library)


def write_whole(file: Path, content: bytes) -> None:
    """A file of other content, whole or not at all, that `content_of` reads."""

    def write(folder: Path) -> Path:
        made = folder / "content"
        made.write_bytes(content)
        return made

    build_into(file, write)


def is_intact(library: Path) -> bool:
    """Whether this user wrote the file and it is complete: loading a damaged one can kill the process."""
    return content_of(library) is not None


def content_of(file: Path) -> bytes | None:
    """Without the hash at its end; None where it is damaged, or of another user."""
    try:
        data = file.read_bytes()
        is_own = file.stat().st_uid == os.geteuid()
    except OSError:
        return None
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return content if is_own and content and hashlib.sha256(content).digest() == digest else None
