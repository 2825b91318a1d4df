"""One command of kernelscope in a process of its own: its JSON, its exit status and what it complained about.

A child, because stdout of the server belongs to the protocol, a damaged run cannot harm the server, and a
command that takes too long can be ended with all that it started.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kernelscope.integrations.packages import needed
from kernelscope.processes.process_trees import end_tree

_MOST = 64 << 20  # bytes of an answer
_FIRST, _LAST = 20_000, 2000  # bytes of text that are kept: of stdout, of stderr


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended."""

    status: int
    form: Any  # its JSON; None where it printed none
    text: str  # the first of what it printed
    complaint: str  # the last lines of stderr


class TooLong(Exception):
    """The command did not end within the limit, and was ended."""


async def run_command(words: Sequence[str], cwd: Path, seconds: float) -> CommandEnd:
    """Run it, and end it with its children if the client gives up or the time is over."""
    anyio = needed("anyio", "mcp", "kernelscope mcp")
    # -P: a file in that folder that is named like a module of Python or ours must not be imported.
    command = [sys.executable, "-P", "-m", "kernelscope", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            with anyio.move_on_after(seconds):
                await anyio.to_thread.run_sync(child.wait, abandon_on_cancel=True)
            if child.poll() is None:
                raise TooLong(f"{words[0]} did not end within {seconds:g} s and was ended")
        finally:
            end_tree(child)
        complaint = _tail(err)
        if out.seek(0, 2) > _MOST:
            complaint = f"the answer has more than {_MOST >> 20} MB; ask for less, for example with LIMIT"
        return CommandEnd(child.returncode, _form(out), _head(out), complaint)


def _form(out: IO[bytes]) -> Any:
    if out.seek(0, 2) > _MOST:
        return None
    out.seek(0)
    try:
        return json.loads(out.read())
    except (ValueError, RecursionError):
        return None


def _head(out: IO[bytes]) -> str:
    out.seek(0)
    return out.read(_FIRST).decode(errors="replace")


def _tail(err: IO[bytes]) -> str:
    size = err.seek(0, 2)
    err.seek(max(0, size - _LAST))
    return err.read().decode(errors="replace").strip().removeprefix("kernelscope: ")
