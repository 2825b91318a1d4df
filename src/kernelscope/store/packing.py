"""One file of a run, to attach to an issue, and back."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernelscope.errors import RunError
from kernelscope.private_files import make_folder, open_private
from kernelscope.store.run_db.row_reader import DatabaseReader
from kernelscope.store.safety.leaving_out import SHORTENED, leave_out
from kernelscope.store.safety.regular_files import (
    is_folder,
    open_regular,
    refuse_other_kinds,
    refuse_without_space,
)
from kernelscope.text.amounts import byte_size

from . import folder

SUFFIX = ".zip"
LEAST_LARGE, MOST_TIMES = 64 << 20, 100  # what unpacks to more than both is refused, unless it is asked for
_PART = r"((rank|child)-\d+(-\d+)?/)?"
_VALUE = r"(graph_|hit_)?\d+/(?!\.)[\w.:+-]{1,250}\.pt"  # as `values/` names its files
_MEMBER = re.compile(
    rf"{_PART}(run\.db|flight|tensors/[0-9a-f]{{1,32}}\.safetensors|values/{_VALUE})|(command|story)\.json"
)
_MOST_FILES = 1_000_000
_CHUNK = 1 << 20
_WRITING: Literal["w"] = "w"  # of a member: always bytes
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(slots=True)
class Packed:
    """What a packed file holds."""

    file: Path
    bytes: int = 0
    values: int = 0  # files of values/, and their bytes before they were packed
    value_bytes: int = 0
    tensors: int = 0
    tensor_bytes: int = 0
    others: int = 0  # files in these folders that are not the run's, and stay behind
    left_out: list[str] = field(default_factory=list)


def pack(run: Path, target: Path, *, without: Collection[str] = ()) -> Path:
    """A zip file with what belongs to the run and nothing else; `without` names parts of it."""
    return pack_parts(run, target, without).file


def pack_parts(run: Path, target: Path, without: Collection[str]) -> Packed:
    """The same, and what the file holds."""
    parts = folder.parts(run)
    if not parts:
        refuse_other_kinds(run / folder.DATABASE)
        raise RunError(f"there is no run in {run}: no process in it recorded anything")
    if target.exists() or target.is_symlink():
        raise RunError(f"{target} already exists; choose another name with -o, or remove it first")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    made = Packed(target, left_out=sorted(without))
    try:
        with (
            open_private(temporary, "xb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for part in parts:
                _pack_part(archive, part, "" if part == run else f"{part.name}/", without, made)
            if "command" not in without and folder.read_invocation(run) is not None:
                _add(archive, folder.command_file(run), folder.COMMAND)
        temporary.replace(target)
        made.bytes = target.stat().st_size
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return made


def _pack_part(
    archive: zipfile.ZipFile, part: Path, prefix: str, without: Collection[str], made: Packed
) -> None:
    database = DatabaseReader(part / folder.DATABASE)  # says what is wrong with a damaged one
    with closing(database), tempfile.TemporaryDirectory(prefix="kernelscope-") as scratch:
        whole = Path(scratch) / folder.DATABASE
        database.copy_to(whole)
        leave_out(whole, database, without)
        _add(archive, whole, prefix + folder.DATABASE)
    flight = part / folder.FLIGHT
    if not set(without) & SHORTENED and (flight.exists() or flight.is_symlink()):
        _add(archive, flight, prefix + folder.FLIGHT)
    for name, wanted in ((folder.TENSORS, r"[0-9a-f]{1,32}\.safetensors"), (folder.VALUES, _VALUE)):
        if name in without:
            continue
        files, others = _files_in(part / name, wanted)
        made.others += others
        for file in files:
            size = _add(archive, file, prefix + file.relative_to(part).as_posix())
            if name == folder.VALUES:
                made.values, made.value_bytes = made.values + 1, made.value_bytes + size
            else:
                made.tensors, made.tensor_bytes = made.tensors + 1, made.tensor_bytes + size


def _files_in(home: Path, wanted: str) -> tuple[list[Path], int]:
    """Files below a folder of the run whose names are ours, and how many others there are.

    A link in place of the folder is refused.
    """
    if not home.exists() and not home.is_symlink():
        return [], 0
    if not is_folder(home):
        raise RunError(f"{home} is not a folder; nothing but regular files and folders is packed")
    deep = wanted.count("/")
    below = [home] if not deep else [path for path in sorted(home.iterdir()) if is_folder(path)]
    files = [file for each in below for file in sorted(each.iterdir())]
    ours = [file for file in files if re.fullmatch(wanted, file.relative_to(home).as_posix())]
    beside = [path for path in home.iterdir() if not is_folder(path)] if deep else []
    return ours, len(files) - len(ours) + len(beside)


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> int:
    """Its bytes; RunError for anything but a regular file of the run's own."""
    with open_regular(path) as source:
        about = os.fstat(source.fileno())
        # Not a file with holes that would take hours to read.
        refuse_without_space(Path(str(archive.filename)).parent, about.st_size, f"packing {path}")
        if about.st_nlink > 1:
            raise RunError(
                f"{path} has {about.st_nlink} hard links, so it is also a file elsewhere, perhaps outside of "
                "the run; copy the run first (cp -r) and pack the copy"
            )
        member = zipfile.ZipInfo(name)  # without times and modes
        member.compress_type = zipfile.ZIP_DEFLATED
        member.external_attr = 0o600 << 16
        with archive.open(member, _WRITING, force_zip64=about.st_size > 1 << 30) as out:
            shutil.copyfileobj(source, out, _CHUNK)
        return about.st_size


def unpack(file: Path, target: Path, *, any_size: bool = False) -> Path:
    """The run in a packed file, in a new folder. Takes only what a run consists of.

    `any_size`: also if it is a hundred times as large as the file, as runs with many zeros are.
    """
    if not file.is_file():
        raise RunError(f"there is no file {file}")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check(file, members, any_size=any_size)
            folder.create(target)
            try:
                total = sum(member.file_size for member in members)
                refuse_without_space(target, total, f"unpacking {file}")
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


def _check(file: Path, members: list[zipfile.ZipInfo], *, any_size: bool) -> None:
    names = [member.filename for member in members]
    for member in members:
        if not _MEMBER.fullmatch(member.filename):
            raise RunError(f"{file} is not a packed run: it holds {member.filename!r:.200}")
        if member.compress_type not in _METHODS or member.flag_bits & 1:
            wrong = f"{member.filename} is encrypted, or has an unknown compression"
            raise RunError(f"{file} is not a packed run: {wrong}")
    if not any(name.endswith(folder.DATABASE) for name in names) or len(set(names)) != len(names):
        raise RunError(f"{file} is not a packed run: it has no {folder.DATABASE}, or a file twice")
    if len(members) > _MOST_FILES:
        raise RunError(f"{file} holds {len(members):,} files, which is too many for a run")
    total, size = sum(member.file_size for member in members), file.stat().st_size
    if total > max(LEAST_LARGE, MOST_TIMES * size) and not any_size:
        raise RunError(
            f"{file} has {byte_size(size)} and would unpack to {byte_size(total)}, "
            f"{total // max(size, 1)} times as much, which few runs do; if you expect that, add --any-size"
        )


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    path = target / member.filename
    make_folder(path.parent, exist_ok=True)
    left = member.file_size
    with archive.open(member) as source, open_private(path, "xb") as out:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise RunError(f"{member.filename} is longer than the file says")
            out.write(chunk)
