"""The side of a machine of the cluster: a process of Ray that runs trials as a search on one machine does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from kernelscope.errors import RunError
from kernelscope.processes.cluster.place import host, move_to
from kernelscope.trials.settings import Settings
from kernelscope.trials.trial_processes import Workers


class TrialMachine:
    """Runs trials of one script in processes of this machine, with a folder of its own."""

    def __init__(self, place: Mapping[str, Any], job: dict[str, Any], timeout: float, fork: bool) -> None:
        self._place, self._job, self._timeout, self._forks = place, job, timeout, fork
        self._home = Path(mkdtemp(prefix="kernelscope-ray-"))
        self._workers: Workers | None = None

    def begin(self) -> dict[str, Any]:
        """Its name, and why it cannot run the script."""
        why = move_to(self._place)
        if not why:
            self._workers = Workers(self._job, self._home, timeout=self._timeout, fork=self._forks)
        return {"host": host(), "why_not": why}

    def run(self, settings: dict[str, Any], discover: bool) -> dict[str, Any]:
        workers = self._workers
        assert workers is not None
        try:
            outcome = workers.run(Settings.from_json(settings), discover=discover)
        except RunError as error:
            return {"error": f"{host()}: {error}"}
        found = [switch.to_json() for switch in workers.found()] if discover else []
        return {
            "outcome": outcome.to_json(),
            "found": found,
            "log": workers.last_log(),
            "notes": workers.notes,
        }

    def close(self) -> None:
        """End its processes, also while a trial runs."""
        if self._workers is not None:
            self._workers.close()
        shutil.rmtree(self._home, ignore_errors=True)
