"""The folder that all ranks of one launch record into, found without communication between them.

Some ranks may not record at all, and would be waited for in vain.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from kernelscope.errors import RunError
from kernelscope.private_files import make_folder, write_text
from kernelscope.store import folder

_LAUNCH = "launch.txt"  # which launch the ranks in this run belong to


def part_of_rank(path: Path, rank: int, launch: str) -> Path:
    """The new part of this rank in the run of this name, which the other ranks of the launch share."""
    part = _claimed(path, rank, launch)
    if part is None:
        raise RunError(f"{path} already exists; choose another name, or remove it first")
    return part


def numbered_part_of_rank(home: Path, stem: str, rank: int, launch: str) -> Path:
    """The new part of this rank in the first run of this launch, STEM-1, STEM-2, …, that has none yet."""
    for number in count(1):
        if (part := _claimed(home / f"{stem}-{number}{folder.SUFFIX}", rank, launch)) is not None:
            return part
    raise AssertionError  # it counts for ever


def _claimed(path: Path, rank: int, launch: str) -> Path | None:
    try:
        if not path.exists():
            _make_shared(path, launch)
    except OSError as error:
        raise RunError(f"{path} cannot be created: {os.strerror(error.errno or 0)}") from None
    if (path / f"rank-{rank}").exists() or _launch_of(path) != launch:
        return None
    return folder.claim_part(path, rank, os.getpid())


def _make_shared(path: Path, launch: str) -> None:
    """Appears with its content at once; if another rank was faster, its folder stays."""
    with TemporaryDirectory(prefix=".kernelscope-", dir=make_folder(path.parent, exist_ok=True)) as made:
        own = Path(made) / path.name
        make_folder(own)
        write_text(own / _LAUNCH, launch)
        try:
            own.rename(path)
        except OSError:
            if not path.exists():
                raise


def _launch_of(path: Path) -> str:
    try:
        return (path / _LAUNCH).read_text(encoding="utf-8")
    except OSError:
        return ""
