"""Every trial on a line of JSON: what was tried, and what came of it. Needs no torch.

The search asks the same questions in the same order, so reading the answers back is all that resuming
takes. A trial that was begun and never ended took the process with it: that is its outcome, unless somebody
has interrupted it, who then wants it to be run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError

from .failures import Failure

CRASHED, TIMED_OUT, INTERRUPTED = "crashed", "timed out", "interrupted"
READY = "ready"  # compiled ahead; what comes of it is told when it is tried
JOURNAL = "journal.jsonl"
RESULTS = ("result.json", "reduced.py", "reduced.safetensors")  # what stands beside it in the end


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one trial."""

    how: str  # failed, passed, crashed, timed out
    failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        return self.how in ("failed", "passed")


class Journal:
    """Kept in memory, and in a file if there is one."""

    def __init__(self, path: Path | None = None, *, resume: bool = False) -> None:
        self._path = path
        self._known: dict[str, Outcome] = {}
        self.trials = 0
        if path is None:
            return
        if path.exists():
            if not resume:
                raise RunError(f"{path} is there already: add --resume to go on, or choose another folder")
            self._read(path)

    def _read(self, path: Path) -> None:
        begun: list[str] = []
        lines = _whole_lines(path)
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                key = str(entry["key"])
                if entry["what"] == "begin":
                    begun.append(key)
                elif entry["what"] == READY or entry["how"] == INTERRUPTED:
                    begun.remove(key)
                else:
                    self._known[key] = Outcome(str(entry["how"]), _failure(entry.get("failure")))
            except (ValueError, KeyError, TypeError):
                raise RunError(f"{path}, line {number}, is no entry of a journal") from None
        for key in begun:
            self._known.setdefault(key, Outcome(CRASHED))
        self.trials = len(self._known)

    def outcome(self, key: str) -> Outcome | None:
        return self._known.get(key)

    def has_lost(self, key: str) -> bool:
        """Whether this was tried, and did not come back."""
        known = self._known.get(key)
        return known is not None and not known.is_over

    def begin(self, key: str, size: int) -> None:
        self._write({"what": "begin", "key": key, "nodes": size, "pid": os.getpid()})

    def end(self, key: str, failure: Failure | None, seconds: float) -> None:
        how = "passed" if failure is None else "failed"
        self._known[key] = Outcome(how, failure)
        self.trials += 1
        told = None if failure is None else asdict(failure) | {"operators": sorted(failure.operators)}
        self._write({"what": "end", "key": key, "how": how, "failure": told, "seconds": round(seconds, 3)})

    @contextmanager
    def ahead(self, key: str, size: int) -> Iterator[None]:
        """What is compiled before it is tried: if that does not come back, the trial is known not to."""
        self.begin(key, size)
        try:
            yield
        finally:
            self._write({"what": READY, "key": key})

    def interrupt(self, key: str) -> None:
        if self._path is not None:
            mark(self._path, key, INTERRUPTED)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _failure(told: Any) -> Failure | None:
    if told is None:
        return None
    fields = {k: str(told[k]) for k in ("kind", "what", "kernel_kind", "where", "told")}
    return Failure(**fields, operators=frozenset(map(str, told["operators"])))


def _whole_lines(path: Path) -> list[str]:
    """A last line whose writer ended in the middle of it goes: the next one would be added to it."""
    try:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    return whole.splitlines()


def reopen(path: Path) -> None:
    """Before a search goes on: nobody was there any more to say that the trial under way had crashed."""
    _whole_lines(path)
    if (trial := underway(path)) is not None:
        mark(path, trial[0], INTERRUPTED)


def mark(path: Path, key: str, how: str) -> None:
    """What the parent knows of a trial that did not come back."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": "end", "key": key, "how": how, "failure": None, "seconds": 0}) + "\n")


def underway(path: Path) -> tuple[str, float] | None:
    """The trial that was begun and has not ended, and when that was written."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        entry = json.loads(lines[-1]) if lines else {}
        if entry.get("what") == "begin":
            return str(entry["key"]), path.stat().st_mtime
    except (OSError, ValueError, KeyError):
        pass
    return None
