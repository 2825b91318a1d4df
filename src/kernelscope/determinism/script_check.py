"""A script several times: the runs are compared, and the calls that differ are replayed alone."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from kernelscope.analysis.determinism import DeterminismResult, accuse, compare_runs
from kernelscope.config import RUN
from kernelscope.errors import RunError
from kernelscope.processes.signals import Terminated
from kernelscope.startup.recorded_child import exact_status, watch
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.text.file_names import file_name
from kernelscope.text.process_ends import how_it_ended

_REPEATER = "kernelscope.determinism.repeated_script"
_MOST_SUSPECTS = 10  # are replayed


@dataclass(frozen=True)
class ReplayNote:
    """What a child has written of one replayed call; the fields are those of `replaying.Replay`."""

    index: int
    kernel_name: str
    times: int
    differed: int
    arguments: tuple[str, ...]
    unwritten: bool
    error: str


class ScriptRuns:
    """One command, which is run several times; each run is recorded with hashes."""

    def __init__(self, command: list[str], ops: str, *, recompile: bool) -> None:
        self._command, self._recompile = command, recompile
        self._options = f"--values=hash --ops={ops}"

    def check(self, runs: int, output: str, stem: str, *, fresh: bool) -> tuple[DeterminismResult, Path]:
        """The result, and the folder with the runs: `output`, or a new one named after `stem`."""
        home = (
            folder.create(Path(output))
            if output
            else folder.create_numbered(Path(folder.HOME), file_name(f"{stem}-determinism"))
        )
        if fresh:
            paths = [self._in_a_process(home / f"run-{n}") for n in range(runs)]
        else:
            paths = self._in_one_process(home, runs)
        result = compare_runs([_loaded(path) for path in paths])
        suspects = [suspect.index for suspect in result.unconfirmed[:_MOST_SUSPECTS]]
        if suspects:
            path = self._in_a_process(home / "replayed", *(f"--replay={index}" for index in suspects))
            result = accuse(result, _replays(_loaded(path)))
        return result, home

    def _in_a_process(self, name: Path, *more: str) -> Path:
        path = folder.create(folder.named(name))
        self._run(self._command, path, " ".join([self._options, *more]), {})
        return path

    def _in_one_process(self, home: Path, runs: int) -> list[Path]:
        """A child runs the script repeatedly, and records each run to a folder of its own."""
        if self._command[0] != sys.executable:
            raise RunError("a command after -- needs one process per run: add --fresh")
        words = [sys.executable, "-m", _REPEATER, str(runs), str(home), self._options]
        words += [*(["--recompile"] if self._recompile else []), "--", *self._command[1:]]
        # The child records by itself; `watch` is only to see how it ends.
        self._run(words, home, "", {RUN: ""})
        return [home / f"run-{n}{folder.SUFFIX}" for n in range(runs)]

    def _run(self, words: list[str], path: Path, options: str, environ: dict[str, str]) -> None:
        heard: list[int] = []
        with _cache(self._recompile) as cache:
            status = watch(words, path, options, aside=True, environ=cache | environ, heard=heard)
        if status:
            exact = exact_status(path, status)
            for number in (signal.SIGTERM, signal.SIGHUP):
                if number in heard:
                    raise Terminated(number)
            if -exact == signal.SIGINT:  # Ctrl-C was meant for the search
                raise KeyboardInterrupt
            script = shlex.join(self._command[1:])
            raise RunError(f"{script} {how_it_ended(exact)}; each run must finish normally")


def _loaded(path: Path) -> StoredRun:
    try:
        return load(path)
    except RunError as error:
        raise RunError(f"{error}; does the script import torch?") from None


def _replays(run: StoredRun) -> dict[int, ReplayNote]:
    notes = run.metadata.get("replays", ())
    names = [f.name for f in fields(ReplayNote)]
    try:
        return {int(one["index"]): ReplayNote(*(one[name] for name in names)) for one in notes}
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{run.path} is damaged: its notes about replays cannot be read") from None


@contextmanager
def _cache(recompile: bool) -> Iterator[dict[str, str]]:
    """With `recompile`, the environment of an empty compile cache."""
    if not recompile:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="kernelscope-cache-") as path:
        yield {"TORCHINDUCTOR_CACHE_DIR": path}
