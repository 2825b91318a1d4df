"""Where runs lie: names, parts of a run, and finding the newest one.

NAME.kscope/            what one process recorded: run.db, flight, tensors/
NAME.kscope/rank-1/     the same of another rank
NAME.kscope/child-42/   the same of another process that was started below it
NAME.kscope/command.json  how `kernelscope run` started the command, and how it ended
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import FILE, FOLDER, make_folder, write_text
from kernelscope.store.safety.origin import is_signed, signed_text
from kernelscope.store.safety.regular_files import is_folder, is_regular, read_regular
from kernelscope.text.file_names import file_name
from kernelscope.text.secrets import hidden_words

SUFFIX = ".kscope"
HOME = "kscope-runs"
DATABASE, FLIGHT, TENSORS, VALUES, COMMAND = "run.db", "flight", "tensors", "values", "command.json"
_MOST_COMMAND = 1 << 24  # bytes of command.json
_MOST_STATUS = 1 << 32
_OLD_COMMAND = "story.json"  # its name in older runs
_PART = re.compile(r"(rank|child)-(\d+)(-\d+)?")


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command that was recorded, and how it ended, as its parent saw it."""

    command: tuple[str, ...] = ()
    cwd: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    status: int | None = None  # as `wait` tells it: below zero is a signal
    secrets: int = 0  # words of the command that were replaced
    signature: str = ""  # of the user who recorded it


def named(path: str | Path) -> Path:
    """A run's folder as it is named on disk."""
    path = Path(path)
    if path.name in ("", ".."):
        raise RunError(f"{path} is not a name for a run")
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


def create(path: Path) -> Path:
    """A new, empty folder; an existing one is never written to."""
    try:
        make_folder(path)
    except (FileExistsError, NotADirectoryError):
        if not path.parent.is_dir():
            raise RunError(f"{path} cannot be created: {path.parent} is not a folder") from None
        raise RunError(f"{path} already exists; choose another name, or remove it first") from None
    except OSError as error:
        raise RunError(f"{path} cannot be created: {os.strerror(error.errno or 0)}") from None
    return path


def create_next(home: Path, stem: str) -> Path:
    """A new folder for a run, numbered."""
    stem = file_name(re.sub(r"[^\w.-]+", "-", stem).strip("-.")) or "run"
    return create_numbered(home, stem, SUFFIX)


def create_numbered(home: Path, name: str, suffix: str = "") -> Path:
    """A new folder under `home`: NAME-1, or the first number after those that are there."""
    number = max(numbered(home, name, suffix), default=0) + 1
    while True:
        path = home / f"{name}-{number}{suffix}"
        try:
            return create(path)
        except RunError:
            if not path.exists():
                raise
            number += 1


def numbered(home: Path, name: str, suffix: str = "") -> dict[int, Path]:
    pattern = re.compile(rf"{re.escape(name)}-(\d+){re.escape(suffix)}")
    return {int(found[1]): path for path in _listed(home) if (found := pattern.fullmatch(path.name))}


def claim_part(path: Path, rank: int | None, pid: int) -> Path:
    """The folder in which this process records: its own, below the run that all of them share."""
    try:
        make_folder(path, exist_ok=True)
        if rank is None:
            try:
                os.close(os.open(path / DATABASE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))
                return path
            except FileExistsError:
                pass
        name = f"child-{pid}" if rank is None else f"rank-{rank}"
        for number in range(1, 1000):
            part = path / (name if number == 1 else f"{name}-{number}")
            try:
                part.mkdir(FOLDER)
                return part
            except FileExistsError:  # restarted by torchrun, or a reused pid
                continue
    except OSError as error:
        raise RunError(f"{path} cannot hold a run: {os.strerror(error.errno or 0)}") from None
    raise RunError(f"{path} has too many parts named {name}")


def parts(path: Path) -> list[Path]:
    """What was recorded in this run, process by process: the first process, ranks in order, children."""
    found = [
        p for p in _listed(path) if _PART.fullmatch(p.name) and is_folder(p) and is_regular(p / DATABASE)
    ]
    found.sort(key=lambda p: (not p.name.startswith("rank"), *map(int, re.findall(r"\d+", p.name))))
    return [path, *found] if is_regular(path / DATABASE) else found


def part_name(run: Path, part: Path) -> str:
    return "" if part == run else part.name


def newest(where: Path | None = None) -> Path:
    """The newest run here: in kscope-runs/ or beside it."""
    found = runs_in(where or Path.cwd())
    if not found and parts(where or Path.cwd()):
        return where or Path.cwd()  # we are inside of one
    if not found:
        where = where or Path.cwd()
        raise RunError(f"there is no run in {where / HOME} or {where}; make one: kernelscope run script.py")
    return found[0]


def runs_in(where: Path) -> list[Path]:
    """The runs in a folder and in its kscope-runs, newest first."""
    found = [p for home in (where, where / HOME) for p in _listed(home) if p.name.endswith(SUFFIX)]
    return sorted((p for p in found if p.is_dir()), key=_age, reverse=True)


def resolve(given: str | Path | None) -> Path:
    """The folder that a RUN argument means: a path, the name of a run here, or nothing for the newest."""
    if given is None or str(given) == "":
        return newest()
    path = Path(given)
    with_suffix = named(path) if path.name not in ("", "..") else path
    candidates = (path, with_suffix, Path(HOME) / path, Path(HOME) / with_suffix.name)
    for candidate in candidates:
        if candidate.is_dir() and (candidate.name.endswith(SUFFIX) or parts(candidate)):
            return candidate
    for candidate in candidates:
        if candidate.is_dir():  # though it holds no run
            return candidate
        if candidate.is_file():
            if candidate.name == DATABASE:
                return candidate.parent
            if candidate.name.endswith(".zip"):
                raise RunError(f"{candidate} is packed; unpack it first: kernelscope unpack {candidate}")
            raise RunError(f"{candidate} is a file; a run is a folder that contains {DATABASE}")
    raise RunError(f"there is no run {given}; `kernelscope ls` lists those here")


def command_file(path: Path) -> Path:
    return next((f for name in (COMMAND, _OLD_COMMAND) if is_regular(f := path / name)), path / COMMAND)


def write_invocation(path: Path, invocation: Invocation) -> None:
    temporary = path / f".{COMMAND}"
    kept, hidden = hidden_words(invocation.command)
    kept_one = replace(invocation, command=tuple(kept), secrets=invocation.secrets + hidden)
    signed = replace(kept_one, signature=signed_text(_signed_part(kept_one)))
    temporary.unlink(missing_ok=True)
    write_text(temporary, json.dumps(asdict(signed), indent=1), errors="surrogateescape")
    temporary.replace(path / COMMAND)


def read_invocation(path: Path) -> Invocation | None:
    """None when the run was not made by `kernelscope run`."""
    file = command_file(path)
    try:
        given = json.loads(read_regular(file, _MOST_COMMAND).decode("utf-8", "surrogateescape"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file} is damaged: {error}") from None
    try:
        command, cwd = tuple(str(c) for c in given["command"]), str(given["cwd"])
        status = None if given["status"] is None else int(given["status"])
        started, ended = (_moment(given[name]) for name in ("started_ns", "ended_ns"))
        if status is not None and abs(status) > _MOST_STATUS:
            raise ValueError(status)
        return Invocation(
            command,
            cwd,
            started,
            ended,
            status,
            int(given.get("secrets", 0)),
            str(given.get("signature", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RunError(f"{file} is damaged: it does not say how the command ended") from None


def is_own_invocation(invocation: Invocation) -> bool:
    """Whether this user recorded this command, in this folder."""
    return is_signed(_signed_part(invocation), invocation.signature)


def _signed_part(invocation: Invocation) -> str:
    return json.dumps([invocation.command, invocation.cwd, invocation.started_ns])


def _moment(given: Any) -> int:
    """Nanoseconds since 1970, up to the year 2500."""
    if not 0 <= int(given) < 1 << 64:
        raise ValueError(given)
    return int(given)


def size(path: Path) -> int:
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name), follow_symlinks=False).st_size
            except OSError:
                continue
    return total


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
