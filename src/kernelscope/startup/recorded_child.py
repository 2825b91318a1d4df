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
from kernelscope.processes.process_trees import end_tree
from kernelscope.store import folder
from kernelscope.store.flight.crash import crash_in
from kernelscope.text.terminal_size import fitted

from .progress import StatusRow, progress_text, terminal_columns
from .run_story import story_of

STARTUP = Path(__file__).parent.parent / "startup" / "on_path"
_REFRESH = 0.5
_MOST_RANKS_READ = 256  # at the end of rank 0, which its launcher waits for


def watch(
    command: list[str],
    path: Path,
    options: str,
    *,
    as_json: bool = False,
    cwd: str = "",
    aside: bool = False,
    environ: Mapping[str, str | None] | None = None,
    heard: list[int] | None = None,
) -> int:
    """Run it to its end and return its exit status, 128 + n for signal n as in a shell.

    With `aside` its output goes to stderr, and nothing is printed about it. `environ` overrides variables;
    None unsets one. Signals that came for this process are added to `heard`.
    """
    invocation = folder.Invocation(tuple(command), cwd or os.getcwd(), time.time_ns())
    try:
        folder.write_invocation(path, invocation)
    except OSError as error:  # a full disk must not stop the program
        _say(f"cannot write to {path}: {error.strerror}")
    wanted = {**recorded_environment(path, options, STARTUP), **(environ or {})}
    environment = {name: value for name, value in wanted.items() if value is not None}
    output = sys.stderr if aside else None
    with _Forwarding([] if heard is None else heard) as signals:
        try:
            # What we were given besides standard input and output, such as 3>log, is meant for the command.
            child = subprocess.Popen(
                command, env=environment, close_fds=False, cwd=cwd or None, stdout=output
            )
        except OSError as error:
            raise RunError(f"{command[0]} cannot be started: {error.strerror}") from None
        signals.begin(child)
        try:
            status = _wait(child, path)
        except BaseException:  # a time limit: nothing may go on running
            end_tree(child)
            raise
    try:
        folder.write_invocation(path, replace(invocation, ended_ns=time.time_ns(), status=status))
        if not aside:
            _tell(path, status, as_json=as_json)
    except OSError as error:
        _say(f"cannot finish {path}: {error.strerror}")
    return status if status >= 0 else 128 - status


def exact_status(path: Path, status: int) -> int:
    """What `watch` has returned, but below zero for a signal, where that was written."""
    invocation = folder.read_invocation(path)
    return status if invocation is None or invocation.status is None else invocation.status


_MEANT_FOR_THE_CHILD = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)


class _Forwarding:
    """Signals that we are sent are the child's; those of the keyboard reach it anyway."""

    def __init__(self, heard: list[int]) -> None:
        self._heard = heard
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
        self._heard.append(number)
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
    with StatusRow(sys.stderr) as row:
        while True:
            try:
                return child.wait(_REFRESH)
            except subprocess.TimeoutExpired:
                row.show(progress_text(path))


def _tell(path: Path, status: int, *, as_json: bool) -> None:
    if as_json:
        try:
            crash = crash_in(path)
        except RunError:
            crash = None
        parts = [folder.part_name(path, part) for part in folder.parts(path)]
        told = {"run": str(path), "status": status, "parts": parts, "crash": crash and crash.as_json()}
        print(json.dumps(told), file=sys.stderr)
        return
    told_by = story_of(path)
    if sys.stderr.isatty() or told_by.is_urgent:
        print(told_by.text(terminal_columns(sys.stderr)), file=sys.stderr)


def tell_end_of_ranks(path: Path) -> None:
    """In rank 0, where no `kernelscope run` started the ranks: that would tell it when all have ended."""
    try:
        if folder.read_invocation(path) is not None:
            return
        if (count := len(folder.parts(path))) > _MOST_RANKS_READ:
            _say(f"{count} processes recorded into {path}; next: kernelscope ranks {shlex.quote(str(path))}")
        else:
            _tell(path, 0, as_json=False)
    except (OSError, RunError) as error:
        _say(f"cannot sum up {path}: {error}")


def _say(text: str) -> None:
    print(fitted(f"kernelscope: {text}", sys.stderr), file=sys.stderr)
