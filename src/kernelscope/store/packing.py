"""One file of a run, to attach to an issue, and back."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from contextlib import closing, suppress
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.store.run_db.row_reader import DatabaseReader

from . import folder

SUFFIX = ".zip"
_PART = r"((rank|child)-\d+(-\d+)?/)?"
_MEMBER = re.compile(rf"{_PART}(run\.db|flight|tensors/[0-9a-f]+\.safetensors)|(command|story)\.json")
_MOST_BYTES = 1 << 40
_CHUNK = 1 << 20


def pack(run: Path, target: Path) -> Path:
    """A zip file with what belongs to the run and nothing else."""
    parts = folder.parts(run)
    if not parts:
        raise RunError(f"there is no run in {run}: no process in it recorded anything")
    if target.exists():
        raise RunError(f"{target} exists already; choose another name with -o, or remove it first")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in parts:
                _pack_part(archive, part, "" if part == run else f"{part.name}/")
            if (command := folder.command_file(run)).is_file():
                archive.write(command, folder.COMMAND)
        temporary.replace(target)
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return target


def _pack_part(archive: zipfile.ZipFile, part: Path, prefix: str) -> None:
    database = DatabaseReader(part / folder.DATABASE)  # says what is wrong with a damaged one
    with closing(database), tempfile.TemporaryDirectory(prefix="kernelscope-") as scratch:
        whole = Path(scratch) / folder.DATABASE
        database.copy_to(whole)
        archive.write(whole, prefix + folder.DATABASE)
    if (part / folder.FLIGHT).is_file():
        archive.write(part / folder.FLIGHT, prefix + folder.FLIGHT)
    for file in sorted((part / folder.TENSORS).glob("*.safetensors")):
        archive.write(file, f"{prefix}{folder.TENSORS}/{file.name}")


def unpack(file: Path, target: Path) -> Path:
    """The run in a packed file, in a new folder. Takes only what a run consists of."""
    if not file.is_file():
        raise RunError(f"there is no file {file}")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check(file, members)
            folder.create(target)
            try:
                for member in members:
                    _extract(archive, member, target)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, ValueError) as error:
        raise RunError(f"{file} is damaged or not a packed run: {error}") from None
    except (OSError, RuntimeError) as error:
        raise RunError(f"{file} cannot be unpacked to {target}: {error}") from None
    except Exception as error:  # zlib.error and the like, from damaged bytes
        if isinstance(error, RunError):
            raise
        raise RunError(f"{file} is damaged: {error}") from None
    return target


def _check(file: Path, members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    for name in names:
        if not _MEMBER.fullmatch(name):
            raise RunError(f"{file} is not a packed run: it holds {name!r}")
    if not any(name.endswith(folder.DATABASE) for name in names) or len(set(names)) != len(names):
        raise RunError(f"{file} is not a packed run: it has no {folder.DATABASE}, or a file twice")
    if sum(member.file_size for member in members) > _MOST_BYTES:
        raise RunError(f"{file} would unpack to more than a terabyte, which is too large for a run")


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    path = target / member.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    left = member.file_size
    with archive.open(member) as source, path.open("xb") as out:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise RunError(f"{member.filename} is longer than the file says")
            out.write(chunk)
