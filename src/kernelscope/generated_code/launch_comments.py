"""Which launch is on which line of a wrapper, Python or C++, by the comments that Inductor writes."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HANDLE = re.compile(r"(?:#|//) \[Provenance debug handles\] (?P<names>.+)$")


@dataclass(frozen=True, slots=True)
class CommentedLaunch:
    """One launch in a wrapper, as the comment before it names it."""

    kernel: str
    handle: int
    line: int  # of the launch


def launches_in(code: str) -> list[CommentedLaunch]:
    """Every launch that has a handle, with its line."""
    found: list[CommentedLaunch] = []
    waiting: list[tuple[str, int]] = []
    for number, line in enumerate(code.splitlines(), start=1):
        handle = _HANDLE.search(line)
        if handle is not None:
            waiting = [_named(name) for name in handle["names"].split(",")]
        for name, n in list(waiting):
            # Statements that the launch needs, such as its stream, may precede it.
            if handle is None and (name in line or name.rpartition(".")[2] in line):
                found.append(CommentedLaunch(name, n, number))
                waiting.remove((name, n))
    return found


def call_name(kernel: str) -> str:
    """A kernel as recorded calls name it: an operator without the namespace of all operators."""
    return kernel.removeprefix("torch.ops.")


def _named(text: str) -> tuple[str, int]:
    name, _, handle = text.strip().rpartition(":")
    return call_name(name), int(handle) if handle.isdigit() else -1
