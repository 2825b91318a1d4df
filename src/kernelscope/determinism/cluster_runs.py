"""Runs of a command on the machines of a Ray cluster, recorded into one folder that all of them see."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import FILE, make_folder
from kernelscope.processes.cluster.machines import WorkerLost
from kernelscope.processes.cluster.place import host, move_to, place_here
from kernelscope.processes.cluster.pool import Pool, Task

from .one_run import record_once

LOG = "output.txt"  # in the folder of a run: what the program printed


class RunMachine:
    """A process of Ray that records runs on its machine."""

    def __init__(self, place: Mapping[str, Any], home: str) -> None:
        self._place, self._home = place, home

    def begin(self) -> dict[str, Any]:
        why = move_to(self._place)
        if not why and not os.path.isdir(self._home):
            why = f"{self._home} does not exist on {host()}; all machines must see it under the same path"
        return {"host": host(), "why_not": why}

    def record(self, command: list[str], path: str, options: str, recompile: bool) -> dict[str, Any]:
        """The exit status; an empty first word of the command is Python."""
        if os.path.exists(os.path.join(path, LOG)):  # of a worker that died
            shutil.rmtree(path)
            make_folder(Path(path))
        log = os.open(os.path.join(path, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE)
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
        words = [command[0] or sys.executable, *command[1:]]
        try:
            status, _ = record_once(words, Path(path), options, recompile=recompile, environ={})
        except RunError as error:
            return {"error": f"{host()}: {error}"}
        return {"status": status, "host": host()}

    def close(self) -> None:
        """Nothing is left: Ray ends its processes with it."""


def record_on_cluster(
    ray: Any, command: Sequence[str], paths: Sequence[Path], options: str, *, recompile: bool,
    say: Callable[[str], None],
) -> tuple[list[int | None], list[str]]:  # fmt: skip
    """The exit status of each run, None for one whose workers died; and notes."""
    words = ["" if command[0] == sys.executable else command[0], *command[1:]]
    arguments = (place_here(words[1:] if not words[0] else [""]), str(paths[0].parent.absolute()))
    pool = Pool(ray, RunMachine, arguments, len(paths), "run", say, threads=1)  # signals want the main thread
    tasks = [Task("record", (words, str(path.absolute()), options, recompile)) for path in paths]
    statuses: list[int | None] = []
    try:
        for number, task in enumerate(tasks):
            try:
                answer = pool.wait(task, then=tasks[number + 1 :])
            except WorkerLost:
                statuses.append(None)
                continue
            if "error" in answer:
                raise RunError(answer["error"])
            statuses.append(answer["status"])
    finally:
        pool.close()
    return statuses, pool.notes
