"""A script several times: the runs are compared, and the calls that differ are replayed alone."""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kernelscope.analysis.determinism import DeterminismResult, accuse, compare_runs
from kernelscope.config import RUN
from kernelscope.errors import RunError
from kernelscope.processes.signals import Terminated
from kernelscope.startup.recorded_child import exact_status
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.text.amounts import counted
from kernelscope.text.file_names import file_name
from kernelscope.text.process_ends import how_it_ended

from .cluster_runs import LOG, record_on_cluster
from .one_run import record_once

_REPEATER = "kernelscope.determinism.repeated_script"
_MOST_SUSPECTS = 10  # are replayed


@dataclass(frozen=True)
class ReplayNote:
    """What a child has written of one replayed call: the fields of `Replay` in `recording/again`."""

    index: int
    kernel_name: str
    times: int
    differed: int
    arguments: tuple[str, ...]
    uninitialised: bool
    error: str


class ScriptRuns:
    """One command, which is run several times; each run is recorded with hashes."""

    def __init__(
        self, command: list[str], ops: str, *, recompile: bool, ray: Any | None = None
    ) -> None:  # fmt: skip
        """With `ray`, which is connected to a cluster, its machines make the runs."""
        self._command, self._recompile, self._ray = command, recompile, ray
        self._options = f"--values=hash --ops={ops}"

    def check(self, runs: int, output: str, stem: str, *, fresh: bool) -> tuple[DeterminismResult, Path]:
        """The result, and the folder with the runs: `output`, or a new one named after `stem`."""
        if not fresh and self._ray is None and self._command[0] != sys.executable:
            raise RunError("a command after -- needs one process per run: add --fresh")
        home = (
            folder.create(Path(output))
            if output
            else folder.create_numbered(Path(folder.HOME), file_name(f"{stem}-determinism"))
        )
        notes: tuple[str, ...] = ()
        if self._ray is not None:
            paths, notes = self._on_cluster(home, runs)
        elif fresh:
            paths = [self._in_a_process(home / f"run-{n}") for n in range(runs)]
        else:
            paths = self._in_one_process(home, runs)
        loaded = [_loaded(path) for path in paths]
        result = compare_runs(loaded)
        suspects = [suspect.index for suspect in result.unconfirmed[:_MOST_SUSPECTS]]
        if suspects:
            path = self._in_a_process(home / "replayed", *(f"--replay={index}" for index in suspects))
            result = accuse(result, _replays(_loaded(path)))
        if result and len(hosts := {run.info.host for run in loaded}) > 1:
            notes += (
                f"the machines {', '.join(sorted(hosts))} may compute differently: check on one of them",
            )
        return replace(result, notes=(*result.notes, *notes)), home

    def _in_a_process(self, name: Path, *more: str) -> Path:
        path = folder.create(folder.named(name))
        self._run(self._command, path, " ".join([self._options, *more]), {})
        return path

    def _on_cluster(self, home: Path, runs: int) -> tuple[list[Path], tuple[str, ...]]:
        """Those that were made; a run whose workers died is left out."""
        paths = [folder.create(folder.named(home / f"run-{n}")) for n in range(runs)]
        statuses, notes = record_on_cluster(
            self._ray, self._command, paths, self._options, recompile=self._recompile, say=_say
        )
        made = []
        for path, status in zip(paths, statuses, strict=True):
            if status:
                raise self._failed(path, status, f"; its output is in {path / LOG}")
            if status is None:
                notes.append(f"{path.name} was not made: its workers died")
            else:
                made.append(path)
        if len(made) < 2:
            raise RunError(f"only {counted(len(made), 'run')} of {runs} could be made: {notes[-1]}")
        return made, tuple(notes)

    def _in_one_process(self, home: Path, runs: int) -> list[Path]:
        """A child runs the script repeatedly, and records each run to a folder of its own."""
        words = [sys.executable, "-m", _REPEATER, str(runs), str(home), self._options]
        words += [*(["--recompile"] if self._recompile else []), "--", *self._command[1:]]
        # The child records by itself; `watch` is only to see how it ends.
        self._run(words, home, "", {RUN: ""})
        return [home / f"run-{n}{folder.SUFFIX}" for n in range(runs)]

    def _run(self, words: list[str], path: Path, options: str, environ: dict[str, str]) -> None:
        status, heard = record_once(words, path, options, recompile=self._recompile, environ=environ)
        if status:
            for number in (signal.SIGTERM, signal.SIGHUP):
                if number in heard:
                    raise Terminated(number)
            if -exact_status(path, status) == signal.SIGINT:  # Ctrl-C was meant for the search
                raise KeyboardInterrupt
            raise self._failed(path, status)

    def _failed(self, path: Path, status: int, more: str = "") -> RunError:
        ended = how_it_ended(exact_status(path, status))
        return RunError(f"{shlex.join(self._command[1:])} {ended}; each run must finish normally{more}")


def _say(text: str) -> None:
    print(f"kernelscope: {text}", file=sys.stderr)


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
