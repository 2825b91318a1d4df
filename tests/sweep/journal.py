"""The journal of a sweep: one JSON line for each sample, each finished job, and each start."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Journal:
    """What earlier runs of the sweep found, and where this one goes on."""

    def __init__(self, path: Path, again: Sequence[str] = ()) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []  # one for each sample: the last that was found
        self.over: set[str] = set()  # jobs that are finished
        self.tried: dict[str, set[int]] = {}
        self.about: list[dict[str, Any]] = []  # machines and versions
        self._commit = _commit()
        known: dict[tuple[str, int], dict[str, Any]] = {}
        for line in _lines(path):
            if "about" in line:
                self.about.append(line["about"])
            elif line.get("event") == "end":
                if "problem" not in line:
                    self.over.add(line["job"])
            else:
                known[line["job"], line["sample"]] = line
        for (job, sample), line in known.items():
            if line["status"] in again:
                self.over.discard(job)
            else:
                self.rows.append(line)
                self.tried.setdefault(job, set()).add(sample)

    def add(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if "status" in line:
            self.rows.append(line)

    def done(self, line: dict[str, Any]) -> None:
        """A line of what was tried now."""
        self.add(line | {"commit": self._commit} if "status" in line else line)

    def note_versions(self, device: str) -> None:
        about = {"machine": _machine(device), "versions": _versions()}
        if about not in self.about:
            self.about.append(about)
            self.add({"about": about})


def together(journals: Sequence[Journal]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of all of them, and the machines; of a sample that several have, the last one's."""
    rows = {(row["job"], row["sample"]): row for journal in journals for row in journal.rows}
    about = {json.dumps(each): each for journal in journals for each in journal.about}
    return [*rows.values()], [*about.values()]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:  # cut off when the sweep was stopped
            continue
    return found


def _commit() -> str:
    """Of the tree that is tried; `KERNELSCOPE_SWEEP_COMMIT` says it where the tree is a copy without git."""
    if given := os.environ.get("KERNELSCOPE_SWEEP_COMMIT"):
        return given
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _machine(device: str) -> str:
    names = {"model name": "", "CPU part": ""}
    cpu = Path("/proc/cpuinfo")
    for line in cpu.read_text().splitlines() if cpu.exists() else []:
        name, _, value = line.partition(":")
        if name.strip() in names:
            names[name.strip()] = value.strip()
    parts = {"0xd0c": "Neoverse-N1"}
    cpu_name = names["model name"] or parts.get(names["CPU part"], platform.machine())
    text = f"{cpu_name}, {platform.machine()}, {os.cpu_count()} cores"
    if device == "cuda":
        import torch

        text = f"{torch.cuda.get_device_name()}; {text}"
    return text


def _versions() -> str:
    def of(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "—"

    return f"torch {of('torch')}, triton {of('triton')}, Python {platform.python_version()}"
