"""The file in which a search writes its trials, and from which it continues. Needs no torch.

A search makes the same trials in the same order, so reading their outcomes back is all that resuming takes.
A trial that was begun and has no end killed its process, unless the user interrupted it: then it runs again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import open_private
from kernelscope.store.safety.origin import is_signed, signed_text
from kernelscope.store.safety.regular_files import read_regular

from .outcome import KILLED, Outcome

FILE = "journal.jsonl"
BISECT, REDUCE = {"kernelscope-bisect": 2}, {"kernelscope-reduce": 1}  # command, version of its format
_SIGNATURE, _MOST_BYTES = "signature", 1 << 30
Trial = str | Mapping[str, Any]  # what identifies a trial: any JSON


class Journal:
    """The trials of one search; those that are in it are not run again."""

    def __init__(self, path: Path | None = None, head: Mapping[str, Any] | None = None) -> None:
        """`head` tells what the search is about; it begins with BISECT or REDUCE."""
        self._path = path
        self._earlier: dict[str, list[Outcome]] = {}  # of a search that was interrupted, in their order
        self._last: dict[str, Outcome] = {}
        self.notes: dict[str, Any] = {}  # what else the search has written
        self.count = self.resumed = 0
        head = head or {}
        if path is not None and path.exists():
            self._read(path, head)
        else:
            self._append(head if path is None else {**head, _SIGNATURE: signed_text(_signed(path, head))})

    def take(self, trial: Trial) -> Outcome | None:
        """The next outcome that the interrupted search had of a trial: a flaky one has several."""
        earlier = self._earlier.get(_key(trial))
        return earlier.pop(0) if earlier else None

    def has(self, trial: Trial) -> bool:
        """Whether `take` has one more of it."""
        return bool(self._earlier.get(_key(trial)))

    def outcome(self, trial: Trial) -> Outcome | None:
        """The last known outcome of a trial."""
        return self._last.get(_key(trial))

    def begin(self, trial: Trial, **about: Any) -> None:
        self._append({"begin": trial, **about, "pid": os.getpid()})

    def interrupt(self, trial: Trial) -> None:
        self._append({"interrupted": trial})

    def end(self, trial: Trial, outcome: Outcome) -> None:
        self._last[_key(trial)] = outcome
        self.count += 1
        self._append({"trial": trial, "outcome": outcome.to_json()})

    def note(self, name: str, value: Any) -> None:
        self.notes[name] = value
        self._append({name: value})

    def _append(self, record: Mapping[str, Any]) -> None:
        if self._path is not None:
            append(self._path, record)

    def _read(self, path: Path, head: Mapping[str, Any]) -> None:
        command, version = next(iter(head.items()), ("", None))
        lines = _whole_lines(path)
        records = _records(path, lines)
        first = records[0] if records else {}
        if not isinstance(first, dict) or first.get(command) != version:
            raise RunError(f"{path} is not a journal of {command} that this version can read")
        different = [name for name, value in head.items() if first.get(name) != value]
        if different:
            was = ", ".join(f"{name} was {first.get(name)!r}" for name in different)
            raise RunError(f"{path} belongs to another search: {was}")
        _keep(path, lines)
        open_trials: list[str] = []
        for number, record in enumerate(records[1:], start=2):
            try:
                self._take_in(record, open_trials)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise RunError(f"{path}, line {number}: not an entry of a journal") from None
        for key in open_trials:
            self._add(key, Outcome(KILLED))
        self.resumed = self.count

    def _take_in(self, record: dict[str, Any], open_trials: list[str]) -> None:
        if "begin" in record:
            open_trials.append(_key(record["begin"]))
        elif "interrupted" in record:
            open_trials.remove(_key(record["interrupted"]))
        elif "trial" in record:
            key = _key(record["trial"])
            if key in open_trials:
                open_trials.remove(key)
            self._add(key, Outcome.from_json(record["outcome"]))
        else:
            self.notes |= record

    def _add(self, key: str, outcome: Outcome) -> None:
        self._earlier.setdefault(key, []).append(outcome)
        self._last[key] = outcome
        self.count += 1


def refuse_foreign(path: Path) -> None:
    """RunError for the journal of a search that this user did not begin, in this folder.

    To continue a search is to execute what its folder holds: compiled kernels, settings of the compiler.
    """
    try:
        first = json.loads(read_regular(path, _MOST_BYTES).partition(b"\n")[0])
        signature = first.pop(_SIGNATURE, None)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        raise RunError(f"{path} cannot be read: it is not the journal of a search") from None
    if not is_signed(_signed(path, first), signature):
        raise RunError(
            f"{path.parent} was not made by you, or not in this place, and code in it would be executed; "
            "start a new search, without --resume"
        )


def _signed(path: Path, head: Mapping[str, Any]) -> str:
    """What a search was about, and where: a copy that was changed is another folder."""
    home = path.parent.resolve()
    return json.dumps([head, str(home), home.stat().st_ino], sort_keys=True)


def _key(trial: Trial) -> str:
    return json.dumps(trial, sort_keys=True)


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Adds one line, in one piece: at most the last line of a journal is incomplete."""
    with open_private(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def running_trial(path: Path) -> tuple[str, float] | None:
    """The trial of another process that was begun and has not ended, and when it was begun."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        record = json.loads(lines[-1]) if lines else {}
        return (str(record["begin"]), path.stat().st_mtime) if "begin" in record else None
    except (OSError, ValueError, KeyError):
        return None


def reopen(path: Path) -> None:
    """Before a search continues: the trial that was running when it was interrupted is to run again."""
    _keep(path, _whole_lines(path))
    if (trial := running_trial(path)) is not None:
        append(path, {"interrupted": trial[0]})


def _whole_lines(path: Path) -> list[str]:
    """All lines but a last one that is incomplete."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    return lines[:-1] if lines and not _is_whole(lines[-1]) else lines


def _is_whole(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return line.endswith("\n")


def _keep(path: Path, lines: list[str]) -> None:
    """Removes an incomplete last line, so that the next one is not appended to it."""
    whole = "".join(lines)
    if path.read_text(encoding="utf-8") != whole:
        path.write_text(whole, encoding="utf-8")


def _records(path: Path, lines: list[str]) -> list[Any]:
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            raise RunError(f"{path}, line {number}: not an entry of a journal") from None
    return records
