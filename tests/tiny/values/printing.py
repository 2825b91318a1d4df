"""What the printer of values writes, taken apart for tests."""

from __future__ import annotations

import io
from collections.abc import Callable

from kernelscope.values import IntermediateValueDebuggingLevel as Level
from kernelscope.values import observe


def printed(program: Callable[[], object], level: Level | str = "2", **options: object) -> str:
    stream = io.StringIO()
    with observe(level, ops="all", stream=stream, **options) as run:  # type: ignore[arg-type]
        program()
    assert not [f for f in run.findings if f.kind == "recorder-error"]
    return stream.getvalue()


def blocks(text: str) -> dict[str, list[str]]:
    """The lines below each title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith(("inductor: ", "aoti_model_inputs - ")):
            lines = found.setdefault(line, [])
        else:
            lines.append(line)
    return found


def number(lines: list[str], name: str) -> float:
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return float(line.split(":")[1].split()[0])
