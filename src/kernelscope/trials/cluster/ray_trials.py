"""The side of the search: trials on the machines of a Ray cluster, several at once. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import make_folder, write_text
from kernelscope.processes.cluster.machines import WorkerLost
from kernelscope.processes.cluster.place import place_here
from kernelscope.processes.cluster.pool import Pool, Task
from kernelscope.trials.outcome import KILLED, Outcome
from kernelscope.trials.settings import Settings, Switch

from .trial_machine import TrialMachine

_MOST_WORKERS = 7  # a search that looks three trials ahead has seven that may come next


@dataclass(eq=False)
class _Trial:
    settings: Settings
    discover: bool
    task: Task


class RayTrials:
    """Runs trials where Ray has room for them; a trial of compiled code goes where it was compiled."""

    def __init__(
        self, ray: Any, job: dict[str, Any], home: Path, *, timeout: float, fork: bool,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._home = home
        make_folder(home / "logs", exist_ok=True)
        self._logs = len(list((home / "logs").glob("trial-*.log")))
        arguments = (place_here(job["words"]), job, timeout, fork)
        self._pool = Pool(ray, TrialMachine, arguments, _MOST_WORKERS, "trial", say)
        self.at_once = self._pool.at_once
        self._begun: list[_Trial] = []  # and not asked for yet
        self._found: list[Switch] = []
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """On all its trials."""
        return [*self._pool.notes, *self._notes]

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome:
        same = [t for t in self._begun if t.settings == settings and t.discover == discover]
        trial = same[0] if same else _trial(settings, discover)
        if same:
            self._begun.remove(trial)
        try:
            answer = self._pool.wait(trial.task)
        except WorkerLost as lost:
            return Outcome(KILLED, f"its worker died each time: {lost}")
        if "error" in answer:
            raise RunError(answer["error"])
        self._logs += 1
        write_text(self._home / "logs" / f"trial-{self._logs}.log", answer["log"])
        self._notes |= dict.fromkeys(answer["notes"])
        if discover:
            self._found = [Switch.from_json(each) for each in answer["found"]]
        return Outcome.from_json(answer["outcome"])

    def expect(self, trials: Sequence[Settings], *, discover: bool) -> None:
        """Begin these, which may be asked for next, as far as there are idle workers."""
        self._pool.settle(0)
        left = [t for t in self._begun if t.discover == discover]
        for settings in trials:
            known = next((t for t in left if t.settings == settings), None)
            if known is not None:
                left.remove(known)  # the same one may be expected several times
                continue
            trial = _trial(settings, discover)
            if not discover and self._pool.is_better_elsewhere(trial.task):
                continue  # where it is compiled it takes less time, even if it has to wait
            if not self._pool.begin(trial.task):
                return
            self._begun.append(trial)

    def found(self) -> list[Switch]:
        return self._found

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> RayTrials:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()


def _trial(settings: Settings, discover: bool) -> _Trial:
    task = Task("run", (settings.to_json(), discover), settings.of_compiler)
    return _Trial(settings, discover, task)
