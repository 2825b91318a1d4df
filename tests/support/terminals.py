"""A command in a real terminal of a given size: what it writes there, byte by byte."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
_LONGEST = 600.0


@dataclass(frozen=True)
class Shown:
    """What came to the terminal, and how the command ended."""

    text: str
    status: int

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def in_terminal(
    words: Sequence[str],
    *,
    cwd: Path,
    columns: int = 80,
    rows: int = 24,
    environ: Mapping[str, str] | None = None,
    keys: Mapping[str, bytes] | None = None,
) -> Shown:
    """`kernelscope words…`; once a text of `keys` has been shown, its keys are pressed."""
    command = [sys.executable, "-m", "kernelscope", *words]
    return command_in_terminal(command, cwd, columns, rows, environ or {}, dict(keys or {}))


def command_in_terminal(
    command: Sequence[str], cwd: Path, columns: int, rows: int, environ: Mapping[str, str],
    keys: dict[str, bytes],
) -> Shown:  # fmt: skip
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    settings = termios.tcgetattr(slave)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    ours = {"PYTHONPATH": str(SRC), "TERM": "xterm", "PYTHONIOENCODING": "utf-8", "PAGER": "cat"}
    without = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "LESS", "NO_COLOR")}
    child = subprocess.Popen(
        command, cwd=cwd, env=without | ours | dict(environ), stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True, preexec_fn=_own_terminal,
    )  # fmt: skip
    os.close(slave)
    data = b""
    until = time.monotonic() + _LONGEST
    try:
        while time.monotonic() < until:
            ready, _, _ = select.select([master], [], [], 0.1)
            if ready:
                try:
                    found = os.read(master, 1 << 16)
                except OSError:  # the terminal is closed
                    break
                if not found:
                    break
                data += found
                text = data.decode("utf-8", "replace")
                for awaited in [each for each in keys if each in text]:
                    os.write(master, keys.pop(awaited))
            elif child.poll() is not None:
                break
        status = child.wait(10)
    finally:
        child.kill()
        os.close(master)
    return Shown(data.decode("utf-8", "replace").replace("\r\n", "\n"), status)


def _own_terminal() -> None:
    """Makes the terminal the one that Ctrl-C and /dev/tty mean."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
