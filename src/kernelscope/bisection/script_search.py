"""A bisection of a script: its trials run in other processes. Needs no torch here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import make_folder
from kernelscope.store import folder
from kernelscope.text.file_names import file_name
from kernelscope.text.secrets import hidden_words
from kernelscope.trials.cluster.ray_trials import RayTrials
from kernelscope.trials.journal import BISECT, FILE, Journal, refuse_foreign
from kernelscope.trials.outcome import Outcome
from kernelscope.trials.progress_line import ProgressLine
from kernelscope.trials.runner import MOST, SoughtFailure, TrialRunner
from kernelscope.trials.trial_processes import Workers

from .axis_order import Descent
from .result import BisectResult

_OF_THE_SCRIPT = "own-failure"  # folder of the search for the script's own failure


@dataclass(frozen=True, slots=True)
class Request:
    """What to bisect, and how."""

    words: tuple[str, ...]  # script.py … or -m module …
    check: str = "shadow"  # shadow | exception | nan | check | predicate
    what: str = ""  # the command, the function, or part of the exception's text
    axes: tuple[str, ...] = ()
    runs: int = 3
    confidence: float = 0.99
    timeout: float = 600.0
    fork: bool = True
    workaround: bool = True  # search for one
    is_default: bool = False  # no check was given: the script's own failure counts if kernels are right

    def __post_init__(self) -> None:
        """Refuse what cannot be searched for before a folder is made."""
        if not 2 <= self.runs <= MOST:
            raise RunError(f"--runs {self.runs}: must be from 2 to {MOST}")
        if not 0 < self.confidence < 1:
            raise RunError(f"--confidence {self.confidence:g}: must be between 0 and 1, for example 0.99")
        if not self.timeout > 0:
            raise RunError(f"--timeout {self.timeout:g}: must be greater than 0 seconds")


def bisect_script(
    request: Request, folder: Path, progress: ProgressLine, ray: Any | None = None
) -> BisectResult:
    """Bisect; `folder` has the journal, perhaps of a search that was interrupted.

    With `ray`, which is connected to a cluster, the trials run there.

    A bug report is a script that raises, or exits with a status: where no kernel explains that, it is itself
    what is searched for.
    """
    result = _search(request, folder, progress, ray)
    if not request.is_default or not result.raised:
        return result
    progress.say(f"no kernel was found to differ from eager; searching for the cause of: {result.raised}")
    inner = folder / _OF_THE_SCRIPT
    make_folder(inner, exist_ok=True)
    found = _search(replace(request, check="exception", is_default=False), inner, progress, ray)
    found.notes.insert(
        0, "no kernel was found to differ from eager; the script's own failure was searched for"
    )
    return found


def _search(request: Request, folder: Path, progress: ProgressLine, ray: Any | None) -> BisectResult:
    head = {
        **BISECT, "command": hidden_words(request.words)[0], "condition": request.check, "what": request.what,
        "axes": list(request.axes),
    }  # fmt: skip
    journal = Journal(folder / FILE, head)
    failure = SoughtFailure(request.check, request.what if request.check == "exception" else "")
    job = {"words": list(request.words), "check": request.check, "what": request.what}

    def show(what: str, outcome: Outcome, seconds: float) -> None:
        text = f"trial {progress.trials + 1}: {what}: {outcome.kind} ({outcome.seconds:.1f} s)"
        progress.show(text, seconds * descent.trials_ahead)

    with _host(request, job, folder, progress, ray) as workers:
        runner = TrialRunner(workers, journal, failure, confidence=request.confidence, progress=show)
        descent = Descent(runner, request.check, request.axes, workaround=request.workaround)
        result = descent.run(request.runs)
    result.folder = str(folder)
    result.notes += workers.notes
    return result


def _host(
    request: Request, job: dict[str, Any], folder: Path, progress: ProgressLine, ray: Any | None
) -> Workers | RayTrials:
    if ray is None:
        return Workers(job, folder, timeout=request.timeout, fork=request.fork, say=progress.say)
    return RayTrials(ray, job, folder, timeout=request.timeout, fork=request.fork, say=progress.say)


def folder_to_resume(given: str, home: Path, stem: str) -> Path:
    """The given folder, or the newest one of this script."""
    if given:
        path = Path(given)
        if not (path / FILE).is_file():
            raise RunError(f"{path} is not the folder of a bisection: it has no {FILE}")
        refuse_foreign(path / FILE)
        return path
    found = folder.numbered(home, _name(stem))
    if not found:
        raise RunError(f"{home} has no bisection of {stem} to resume")
    refuse_foreign(found[max(found)] / FILE)
    return found[max(found)]


def next_folder(home: Path, stem: str) -> Path:
    return folder.create_numbered(home, _name(stem))


def _name(stem: str) -> str:
    return f"{file_name(stem)}-bisect"
