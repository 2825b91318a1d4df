"""A bisection of a script: trials in processes of their own, each written down. Needs no torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.text.file_names import file_name
from kernelscope.trials.failure_signature import Failure
from kernelscope.trials.journal import FILE, Journal
from kernelscope.trials.runner import Trials
from kernelscope.trials.settings import Outcome
from kernelscope.trials.workers import Workers

from .descent import Descent
from .result import BisectResult

Progress = Callable[[str, Outcome, float], None]  # what was tried, how it ended, seconds that are left, about


@dataclass(frozen=True, slots=True)
class Request:
    """What to bisect, and how."""

    words: tuple[str, ...]  # script.py … or -m module …
    condition: str = "shadow"  # shadow | exception | nan | check | predicate
    what: str = ""  # the command, the function, or part of the exception's text
    axes: tuple[str, ...] = ()
    runs: int = 3
    confidence: float = 0.99
    timeout: float = 600.0
    fork: bool = True
    workaround: bool = True  # look for a setting that helps


def bisect_script(
    request: Request, folder: Path, progress: Progress, say: Callable[[str], None] = lambda text: None
) -> BisectResult:
    """Bisect; `folder` has the journal, perhaps of one that was interrupted. `say` prints what is unusual."""
    if not 0 < request.confidence < 1:
        raise RunError(f"--confidence {request.confidence}: use a number between 0 and 1, such as 0.99")
    if request.timeout <= 0:
        raise RunError(f"--timeout {request.timeout}: use a number of seconds above 0")
    about = {
        "command": list(request.words), "condition": request.condition, "what": request.what,
        "axes": list(request.axes),
    }  # fmt: skip
    journal = Journal(folder, about)
    failure = Failure(request.condition, request.what if request.condition == "exception" else "")
    job = {
        "words": list(request.words),
        "condition": {"kind": request.condition, "what": request.what},
    }
    workers = Workers(job, folder, timeout=request.timeout, fork=request.fork, say=say)
    try:
        trials = Trials(
            workers, journal, failure, confidence=request.confidence,
            progress=lambda what, outcome, each: progress(what, outcome, each * descent.trials_ahead),
        )  # fmt: skip
        descent = Descent(trials, request.condition, request.axes, workaround=request.workaround)
        result = descent.run(request.runs)
    finally:
        workers.close()
    result.folder = str(folder)
    result.notes += workers.notes
    return result


def folder_to_resume(given: str, home: Path, stem: str) -> Path:
    """The folder that was named, or the newest of this script."""
    if given:
        path = Path(given)
        if not (path / FILE).is_file():
            raise RunError(f"{path} is no folder of a bisection: it has no {FILE}")
        return path
    found = _numbered(home, stem)
    if not found:
        raise RunError(f"there is no bisection of {stem} in {home} to go on with")
    return found[max(found)]


def next_folder(home: Path, stem: str) -> Path:
    number = max(_numbered(home, stem), default=0) + 1
    path = home / f"{file_name(stem)}-bisect-{number}"
    path.mkdir(parents=True)
    return path


def _numbered(home: Path, stem: str) -> dict[int, Path]:
    paths: Sequence[Path] = list(home.glob(f"{escape(file_name(stem))}-bisect-*")) if home.is_dir() else []
    numbers = {path.name.rpartition("-")[2]: path for path in paths if path.is_dir()}
    return {int(number): path for number, path in numbers.items() if number.isdigit()}
