"""A reduction of a script: a child searches.

A trial that ends the child is an outcome, too: another child continues from the journal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from kernelscope.errors import RunError
from kernelscope.processes.process_trees import end_tree, has_ended
from kernelscope.processes.signals import held_back, terminable
from kernelscope.text.process_ends import how_it_ended

from .journal import CRASHED, JOURNAL, RESULTS, TIMED_OUT, mark, reopen, underway

_MOST_CRASHES = 50
_LOOK = 0.2  # seconds


def open_folder(folder: Path, *, resume: bool) -> None:
    """A new folder for a search, or that of an interrupted one."""
    journal = folder / JOURNAL
    if folder.exists() and not resume:
        raise RunError(f"{folder} already exists: add --resume to continue it, or choose another with -o")
    if resume and not journal.exists():
        raise RunError(f"{journal} does not exist: nothing to resume")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create {folder}: {error.strerror}") from None
    for name in RESULTS:
        (folder / name).unlink(missing_ok=True)
    journal.touch()
    reopen(journal)


class Search:
    """Children that search one after the other, in an open folder, and the result of the last."""

    def __init__(
        self, words: list[str], folder: Path, repeats: int, timeout: int, stdout: TextIO | None
    ) -> None:
        self.journal = folder / JOURNAL
        self._folder, self._timeout, self._stdout = folder, timeout, stdout
        child = [sys.executable, "-m", "kernelscope.reduction.script_child"]
        self._command = [*child, str(folder), str(repeats), str(timeout), "--", *words]

    def run(self) -> dict[str, Any]:
        """What result.json has, or a `problem`."""
        with terminable():
            for _ in range(_MOST_CRASHES):
                how = self._search()
                try:
                    return dict(json.loads((self._folder / "result.json").read_text(encoding="utf-8")))
                except (OSError, ValueError):
                    pass
                trial = underway(self.journal)
                if trial is None:
                    problem = f"the script {how} before any graph could be tried; see kernelscope run"
                    return {"problem": problem}
                mark(self.journal, trial[0], TIMED_OUT if how == TIMED_OUT else CRASHED)
                print(f"kernelscope: a trial {how}; continuing without it", file=sys.stderr)
        return {"problem": f"{_MOST_CRASHES} trials crashed or hung; {self.journal} lists them"}

    def _search(self) -> str:
        """One child, and how it ended."""
        child: subprocess.Popen[bytes] | None = None
        try:
            with held_back():
                child = subprocess.Popen(self._command, stdout=self._stdout)
            return self._wait(child)
        except KeyboardInterrupt:
            if child is not None:
                end_tree(child)
            raise

    def _wait(self, child: subprocess.Popen[bytes]) -> str:
        """How it ended; where a trial takes too long, with all that it has started."""
        while not has_ended(child, _LOOK):
            trial = underway(self.journal)
            if trial is not None and time.time() - trial[1] > self._timeout:
                end_tree(child)
                return TIMED_OUT
        status = child.returncode
        return how_it_ended(status)
