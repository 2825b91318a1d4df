"""What `kernelscope determinism` does: the script several times, compared, and its suspects replayed."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from kernelscope.analysis.determinism import DeterminismResult, accuse, compare_runs
from kernelscope.cli.programs.run import command_of
from kernelscope.config import RUN
from kernelscope.errors import RunError
from kernelscope.startup.recorded_child import watch
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.text.file_names import file_name
from kernelscope.views import plain

_REPEATER = "kernelscope.determinism.repeated_script"
_MOST_SUSPECTS = 10  # are replayed


@dataclass(frozen=True)
class Told:
    """What a child has told of one replayed call; the fields are those of `replaying.Replay`."""

    index: int
    kernel_name: str
    times: int
    differed: int
    arguments: tuple[str, ...]
    unwritten: bool
    error: str


def repeat(args: argparse.Namespace) -> int:
    if args.runs < 2:
        raise RunError(f"--runs {args.runs}: it takes two runs to see a difference")
    if args.ops not in ("all", "graph"):
        raise RunError(f"--ops {args.ops}: use all or graph")
    command, stem = command_of(args)
    home = (
        folder.create(Path(args.output)) if args.output else _next(Path(folder.HOME), f"{stem}-determinism")
    )
    options = f"--values=hash --ops={args.ops}"
    if args.fresh:
        paths = [_in_a_process(command, home / f"run-{n}", options, args) for n in range(args.runs)]
    else:
        paths = _in_one_process(command, home, options, args)
    result = compare_runs([_loaded(path) for path in paths])
    suspects = [suspect.index for suspect in result.unconfirmed[:_MOST_SUSPECTS]]
    if suspects:
        again = [options, *(f"--replay={index}" for index in suspects)]
        path = _in_a_process(command, home / "replayed", " ".join(again), args)
        result = accuse(result, _replays(_loaded(path)))
    _show(result, home, as_json=args.json)
    return int(bool(result))


def _show(result: DeterminismResult, home: Path, *, as_json: bool) -> None:
    if as_json:
        plain.dump(result.to_json() | {"path": str(home)})
    else:
        print(result)
        print(f"  the runs are in {home}")


def _in_a_process(command: list[str], name: Path, options: str, args: argparse.Namespace) -> Path:
    path = folder.create(folder.named(name))
    with _cache(args.recompile) as environ:
        status = watch(command, path, options, aside=True, environ=environ)
    _check(status, command)
    return path


def _in_one_process(command: list[str], home: Path, options: str, args: argparse.Namespace) -> list[Path]:
    """A child runs the script again and again, and records each time to a folder of its own."""
    if command[0] != sys.executable:
        raise RunError("a command can only be repeated in processes of its own: add --fresh")
    words = [sys.executable, "-m", _REPEATER, str(args.runs), str(home), options]
    words += [*(["--recompile"] if args.recompile else []), "--", *command[1:]]
    with _cache(args.recompile) as environ:
        # The child records by itself; what `watch` asks for is the parent's view of how it ended.
        status = watch(words, home, "", aside=True, environ=environ | {RUN: ""})
    _check(status, command)
    return [home / f"run-{n}{folder.SUFFIX}" for n in range(args.runs)]


def _check(status: int, command: list[str]) -> None:
    if status:
        raise RunError(f"{shlex.join(command[1:])} ended with status {status}; it has to run to its end")


def _loaded(path: Path) -> StoredRun:
    try:
        return load(path)
    except RunError as error:
        raise RunError(f"{error}; does the script import torch?") from None


def _replays(run: StoredRun) -> dict[int, Told]:
    told = run.notes_of_run.get("replays", ())
    names = [f.name for f in fields(Told)]
    try:
        return {int(one["index"]): Told(*(one[name] for name in names)) for one in told}
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{run.path} does not tell how its replays went") from None


@contextmanager
def _cache(recompile: bool) -> Iterator[dict[str, str]]:
    """An empty compile cache, if asked for."""
    if not recompile:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="kernelscope-cache-") as path:
        yield {"TORCHINDUCTOR_CACHE_DIR": path}


def _next(home: Path, stem: str) -> Path:
    stem = file_name(stem)
    number = 1
    while (home / f"{stem}-{number}").exists():
        number += 1
    return folder.create(home / f"{stem}-{number}")
