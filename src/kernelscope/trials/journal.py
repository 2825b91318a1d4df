"""Every trial in a file, as it ends: whoever was interrupted goes on there, and can see what was tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError

from .settings import Outcome, Settings, Switch

FILE = "journal.jsonl"
_VERSION = 1


class Journal:
    """The trials of one bisection; those that it already has are not run again."""

    def __init__(self, folder: Path | None, about: Mapping[str, Any]) -> None:
        self._path = None if folder is None else folder / FILE
        self._known: dict[str, list[Outcome]] = {}  # in their order: a flaky trial has several
        self.switches: list[Switch] = []  # as the first trial found them
        self.resumed = 0
        if self._path is not None and self._path.exists():
            self._read(self._path, about)
        elif self._path is not None:
            self._append({"kernelscope-bisect": _VERSION, **about})

    def take(self, settings: Settings) -> Outcome | None:
        """The next outcome that is known of such a trial."""
        known = self._known.get(_key(settings))
        return known.pop(0) if known else None

    def add(self, settings: Settings, outcome: Outcome) -> None:
        self._append({"trial": settings.to_json(), "outcome": outcome.to_json()})

    def found(self, switches: list[Switch]) -> None:
        self.switches = switches
        self._append({"switches": [switch.to_json() for switch in switches]})

    def _append(self, record: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            # In one piece, so that at most the last line is torn.
            file.write(json.dumps(record) + "\n")

    def _read(self, path: Path, about: Mapping[str, Any]) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        try:
            head, *records = [json.loads(line) for line in lines[:-1]]
        except ValueError:
            raise RunError(f"{path} is no journal of a bisection: a line in it is not JSON") from None
        records += _last(lines)
        if head.get("kernelscope-bisect") != _VERSION:
            raise RunError(f"{path} is no journal of a bisection that this version can read")
        different = [name for name, value in about.items() if head.get(name) != value]
        if different:
            was = ", ".join(f"{name} was {head.get(name)!r}" for name in different)
            raise RunError(f"{path} belongs to another bisection: {was}")
        for record in records:
            if "trial" in record:
                settings = Settings.from_json(record["trial"])
                self._known.setdefault(_key(settings), []).append(Outcome.from_json(record["outcome"]))
                self.resumed += 1
            elif "switches" in record:
                self.switches = [Switch.from_json(each) for each in record["switches"]]
        if lines and not _last(lines) and len(lines) > 1:  # the torn line goes
            path.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")


def _last(lines: list[str]) -> list[dict[str, Any]]:
    try:
        return [json.loads(lines[-1])] if len(lines) > 1 else []
    except ValueError:
        return []


def _key(settings: Settings) -> str:
    return json.dumps(settings.to_json(), sort_keys=True)
