"""The recorded child process, from its parent: start it, watch it, report how it ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

from kernelscope.config import recorded_environment
from kernelscope.errors import RunError
from kernelscope.store import folder
from kernelscope.store.flight.crash import crash_in
from kernelscope.store.flight.reader import read_status
from kernelscope.text.amounts import byte_size
from kernelscope.text.visible import control

STARTUP = Path(__file__).parent.parent / "startup" / "on_path"
_REFRESH = 0.5
_CLEAR = "\r\x1b[2K"  # the line


def watch(
    command: list[str],
    path: Path,
    options: str,
    *,
    as_json: bool = False,
    cwd: str = "",
    aside: bool = False,
    environ: Mapping[str, str | None] | None = None,
) -> int:
    """Run it to its end and return its exit status, 128 + n for signal n as in a shell.

    With `aside` its output goes to stderr, and nothing is printed about it. `environ` overrides variables;
    None unsets one.
    """
    invocation = folder.Invocation(tuple(command), cwd or os.getcwd(), time.time_ns())
    try:
        folder.write_invocation(path, invocation)
    except OSError as error:  # a full disk must not stop the program
        print(f"kernelscope: cannot write to {path}: {error.strerror}", file=sys.stderr)
    wanted = {**recorded_environment(path, options, STARTUP), **(environ or {})}
    environment = {name: value for name, value in wanted.items() if value is not None}
    output = sys.stderr if aside else None
    with _Forwarding() as signals:
        try:
            # What we were given besides standard input and output, such as 3>log, is meant for the command.
            child = subprocess.Popen(
                command, env=environment, close_fds=False, cwd=cwd or None, stdout=output
            )
        except OSError as error:
            raise RunError(f"{command[0]} cannot be started: {error.strerror}") from None
        signals.begin(child)
        status = _wait(child, path)
    try:
        folder.write_invocation(path, replace(invocation, ended_ns=time.time_ns(), status=status))
        if not aside:
            _tell(path, status, as_json=as_json)
    except OSError as error:
        print(f"kernelscope: cannot finish {path}: {error.strerror}", file=sys.stderr)
    return status if status >= 0 else 128 - status


_MEANT_FOR_THE_CHILD = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)


class _Forwarding:
    """Signals that we are sent are the child's; those of the keyboard reach it anyway."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # came before there was a child
        self._before: dict[int, object] = {}

    def __enter__(self) -> _Forwarding:
        for number in (*_MEANT_FOR_THE_CHILD, *_FROM_THE_KEYBOARD):
            self._before[number] = signal.signal(number, self._forward)
        return self

    def begin(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        while self._early:
            child.send_signal(self._early.pop(0))

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number in _FROM_THE_KEYBOARD and _has_keyboard():
            return
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]


def _has_keyboard() -> bool:
    """Whether the terminal's keys go to our process group, whatever standard input is."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _wait(child: subprocess.Popen[bytes], path: Path) -> int:
    live = sys.stderr.isatty()
    try:
        while True:
            try:
                return child.wait(_REFRESH)
            except subprocess.TimeoutExpired:
                if live:
                    control(sys.stderr, _CLEAR)
                    print(_live_line(path), end="", file=sys.stderr, flush=True)
    finally:
        if live:
            control(sys.stderr, _CLEAR)
            sys.stderr.flush()


def _live_line(path: Path) -> str:
    found = [status for part in folder.parts(path) if (status := read_status(part / folder.FLIGHT))]
    if not found:
        return "kernelscope: waiting for torch"
    calls, graphs, written = (sum(column) for column in zip(*found, strict=True))
    return f"kernelscope: {calls:,} calls, {graphs} graphs, {byte_size(written)} written"


def _tell(path: Path, status: int, *, as_json: bool) -> None:
    try:
        crash = crash_in(path)
        said = crash.text() if crash is not None else ""
    except RunError as error:
        crash, said = None, str(error)
    if as_json:
        parts = [folder.part_name(path, part) for part in folder.parts(path)]
        told = {"run": str(path), "status": status, "parts": parts, "crash": crash and crash.as_json()}
        print(json.dumps(told), file=sys.stderr)
    elif crash is not None and (status or crash.executing):  # a pool ends its workers with a signal
        print(f"kernelscope: {said}\n  kernelscope show --crash {shlex.quote(str(path))}", file=sys.stderr)
    elif sys.stderr.isatty() or (said and crash is None):
        print(f"kernelscope: {said if crash is None and said else _recorded(path)}", file=sys.stderr)


def _recorded(path: Path) -> str:
    parts = folder.parts(path)
    if not parts:
        return f"nothing was recorded: no process imported torch ({path})"
    found = [status for part in parts if (status := read_status(part / folder.FLIGHT))]
    calls = sum(status[0] for status in found)
    return (
        f"recorded {calls:,} calls in {len(parts)} {'process' if len(parts) == 1 else 'processes'} to {path}"
    )
