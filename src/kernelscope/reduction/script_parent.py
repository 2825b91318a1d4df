"""A reduction of a script: a child process searches.

If a trial kills the child, or takes too long, another child continues from the journal without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from kernelscope.errors import RunError
from kernelscope.private_files import make_folder
from kernelscope.processes.process_trees import end_tree, has_ended
from kernelscope.processes.signals import held_back, terminable
from kernelscope.text.process_ends import how_it_ended
from kernelscope.text.terminal_size import fitted
from kernelscope.trials.journal import FILE, REDUCE, Journal, append, refuse_foreign, reopen, running_trial
from kernelscope.trials.outcome import KILLED, TIMED_OUT, Outcome

_RESULTS = ("result.json", "reduced.py", "reduced.safetensors")
_MOST_CRASHES = 50
_LOOK = 0.2  # seconds


def open_folder(folder: Path, *, resume: bool) -> None:
    """A new folder for a search, or that of an interrupted one."""
    journal = folder / FILE
    if folder.exists() and not resume:
        raise RunError(f"{folder} already exists: add --resume to continue it, or choose another with -o")
    if resume and not journal.exists():
        raise RunError(f"{journal} does not exist: nothing to resume")
    if resume:
        refuse_foreign(journal)
    try:
        make_folder(folder, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create {folder}: {error.strerror}") from None
    for name in _RESULTS:
        (folder / name).unlink(missing_ok=True)
    Journal(journal, REDUCE)
    reopen(journal)


class Search:
    """Children that search one after the other, in an open folder, and the result of the last."""

    def __init__(
        self, words: list[str], folder: Path, repeats: int, timeout: int, stdout: TextIO | None
    ) -> None:
        self.journal = folder / FILE
        self._folder, self._timeout, self._stdout = folder, timeout, stdout
        child = [sys.executable, "-m", "kernelscope.reduction.script_child"]
        self._command = [*child, str(folder), str(repeats), *words]

    def run(self) -> dict[str, Any]:
        """What result.json has, or a `problem`."""
        with terminable():
            for _ in range(_MOST_CRASHES):
                outcome = self._search()
                try:
                    return dict(json.loads((self._folder / "result.json").read_text(encoding="utf-8")))
                except (OSError, ValueError):
                    pass
                trial = running_trial(self.journal)
                if trial is None:
                    problem = f"the script {outcome.what} before any graph was tried; see kernelscope run"
                    return {"problem": problem}
                append(self.journal, {"trial": trial[0], "outcome": outcome.to_json()})
                how = outcome.what or outcome.kind
                told = f"kernelscope: a trial {how}; continuing without it"
                print(fitted(told, sys.stderr), file=sys.stderr)
        return {"problem": f"{_MOST_CRASHES} trials crashed or hung; {self.journal} lists them"}

    def _search(self) -> Outcome:
        """How one child ended; if a trial takes too long, it is killed with all its processes."""
        child: subprocess.Popen[bytes] | None = None
        try:
            with held_back():
                child = subprocess.Popen(self._command, stdout=self._stdout)
            while not has_ended(child, _LOOK):
                trial = running_trial(self.journal)
                if trial is not None and time.time() - trial[1] > self._timeout:
                    end_tree(child)
                    return Outcome(TIMED_OUT)
        except KeyboardInterrupt:
            if child is not None:
                end_tree(child)
            raise
        return Outcome(KILLED, how_it_ended(child.returncode))
