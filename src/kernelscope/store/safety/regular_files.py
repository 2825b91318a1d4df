"""Files of a run, opened only if they are regular files: no link leads out of it, no pipe hangs us."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from kernelscope.errors import RunError
from kernelscope.text.amounts import byte_size

_LEFT_OVER = 64 << 20  # bytes that a disk keeps free
_KINDS = {
    stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder",
}  # fmt: skip


def is_regular(path: Path) -> bool:
    """Whether it is there, and a file itself."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether it is there, and a folder itself."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def refuse_other_kinds(path: Path) -> None:
    """RunError for what exists and is not a regular file."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except (OSError, ValueError):
        return
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "not a file")
        raise RunError(f"{path} is {what}; the files of a run are regular files, and nothing else is opened")


def open_regular(path: Path) -> BinaryIO:
    """For reading; RunError where it is something else than a regular file, OSError where there is none."""
    refuse_other_kinds(path)
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_regular(path: Path, most: int) -> bytes:
    """All of a file that may have at most so many bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise RunError(f"{path} is damaged: it has {size:,} bytes, and at most {most:,} are possible")
        return file.read(most + 1)


def refuse_without_space(folder: Path, size: int, what: str) -> None:
    """RunError if so many bytes do not fit there, with something left over."""
    free = shutil.disk_usage(folder).free
    if size > free - _LEFT_OVER:
        raise RunError(
            f"{what} needs {byte_size(size)}, and {folder} has {byte_size(free)} left; "
            "make room, or use another disk (TMPDIR)"
        )
