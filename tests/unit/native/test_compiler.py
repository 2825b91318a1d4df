"""Running the C++ compiler: what happens when it, or the program that waits for it, is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from kernelscope.native.compiler import run


class Interrupted(BaseException):
    """As Ctrl-C raises KeyboardInterrupt."""


def test_an_interrupted_program_leaves_no_compiler_behind(tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    number = tmp_path / "pid"
    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupted):
            run(["sh", "-c", f"echo $$ > '{number}'; exec sleep 60"], seconds=60)
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ProcessLookupError):
        os.killpg(int(number.read_text()), 0)


def test_an_interrupt_after_a_compiler_has_ended_reaches_no_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Popen waits for a moment when it is interrupted: then the number may belong to another process."""
    original, killed = subprocess.Popen.communicate, list[int]()

    def interrupted(child: subprocess.Popen[str], *args: Any, **kwargs: Any) -> Any:
        original(child, *args, **kwargs)
        if kwargs:
            raise KeyboardInterrupt
        return "", ""

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    monkeypatch.setattr(os, "killpg", lambda pid, _: killed.append(pid))
    with pytest.raises(KeyboardInterrupt):
        run(["true"], 60)
    assert not killed
