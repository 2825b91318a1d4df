"""Ctrl-C while a recorded program runs: it ends as it would alone, and the run says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import kernelscope

PROGRAM = """
import sys, time, torch

torch.ones(3)
print("ready", flush=True); time.sleep(60)
"""


def test_the_exit_status_is_that_of_ctrl_c(tmp_path: Path) -> None:
    """Recording executes text while it closes, after which Python alone would exit with status 1."""
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "kernelscope", "run", "--ops", "all", "-o", "run", "train.py"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "KeyboardInterrupt" in said
    assert len(kernelscope.load(tmp_path / "run.kscope")) == 1
    shown = subprocess.run(
        [sys.executable, "-m", "kernelscope", "show", "--crash", "run.kscope"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "was interrupted with Ctrl-C at " in shown.stdout
    assert "train.py:5" in shown.stdout
