"""What the file system below a folder can do: SQLite's write-ahead log needs memory that one host shares."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelscope.events import Finding
from kernelscope.private_files import FILE

# As the kernel names them in /proc/self/mounts; other hosts may have the same files open.
_NETWORKS = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fuse.blobfuse2", "fuse.ceph", "fuse.gcsfuse",
    "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb", "smb2", "smb3", "smbfs",
    "vboxsf", "virtiofs", "wekafs",
))  # fmt: skip
_MOUNTS = Path("/proc/self/mounts")


def network_of(folder: Path, mounts: str | None = None) -> str:
    """The kind of network file system that a folder lies on, such as "nfs4"; "" on a local one.

    mounts  the text of /proc/self/mounts; left out, it is read
    """
    kind = file_system_of(folder, mounted() if mounts is None else mounts)
    return kind if kind in _NETWORKS else ""


def file_system_of(folder: Path, mounts: str) -> str:
    """What is mounted nearest above the folder, last; "" where that is not known."""
    real = os.path.realpath(folder)
    found, longest = "", -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        is_above = real == point or real.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= longest:  # a later one hides an earlier one
            found, longest = fields[2], len(point)
    return found


def mounted() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return ""


Lock = Callable[[int, int], None]


def can_lock(path: Path, lock: Lock = fcntl.lockf) -> bool:
    """Whether SQLite can: where it cannot, it waits as if another process had the lock. Makes the file."""
    return _takes(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE), fcntl.LOCK_EX, lock)


def can_share(path: Path) -> bool:
    """Whether a file can be locked for reading; asked of one that SQLite does not use, because closing it
    gives up all locks that this process has on it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True  # not known: as on any disk
    return _takes(file, fcntl.LOCK_SH, fcntl.lockf)


def _takes(file: int, kind: int, lock: Lock) -> bool:
    """Whether this file can have a lock of that kind, if not now; closes it."""
    try:
        lock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def about_disk(folder: Path, network: str, *, has_log: bool, unlocked: str) -> Iterator[Finding]:
    """What a run's file system makes worse, and what to do."""
    local = "record to a local folder, with -o or KERNELSCOPE_RUN, and copy the run when it is closed"
    if not has_log:
        on = f"on a network file system ({network})" if network else "where SQLite has no write-ahead log"
        told = (
            f"{folder} is {on}: a program that reads the run while it is recorded delays the recording, and "
            f"ends it when it takes more than a minute; {local}"
        )
        yield Finding("network-disk", told)
    if unlocked:
        told = (
            f"{folder} cannot be locked ({unlocked}): until it is closed, readers cannot know whether it is"
        )
        yield Finding("no-file-locks", f"{told} still being recorded; {local}")
