"""A new file that is there whole or not at all."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from kernelscope.errors import RunError
from kernelscope.private_files import FOLDER, open_private

STANDARD_OUTPUT = Path("-")


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """A text file to write to, UTF-8; "-" is standard output."""
    if path == STANDARD_OUTPUT:
        yield sys.stdout
        return
    refuse_existing(path)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with open_private(unfinished, "w", encoding="utf-8", newline="\n") as file:
            yield cast(TextIO, file)
        refuse_existing(path)  # it may have come since
        unfinished.rename(path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    finally:
        if unfinished.parent.is_dir():
            unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write to; it gets its name when all is in it."""
    refuse_existing(path)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.mkdir(FOLDER)
    except FileExistsError:
        raise RunError(f"{unfinished} already exists: wait for the other export, or remove it") from None
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        yield unfinished
        unfinished.rename(path)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def refuse_existing(path: Path) -> None:
    try:
        if path.exists() or path.is_symlink():
            raise RunError(f"{path} already exists and is not overwritten; choose another name with -o")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    if not path.absolute().parent.is_dir():
        raise RunError(f"cannot write {path}: there is no folder {path.parent}")
