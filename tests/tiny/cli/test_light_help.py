"""`kernelscope --help` comes at once: it loads nothing that it does not need."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import kernelscope

USUAL = "import argparse, dataclasses, json"  # what any command of this size imports


def cpu_seconds(code: str, enough: float = 0.0) -> tuple[float, subprocess.CompletedProcess[str]]:
    """The least of five runs, or the first that took at most `enough`."""
    environment = os.environ | {"PYTHONPATH": str(Path(kernelscope.__file__).parents[1])}
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if taken[-1] <= enough:
            break
    return min(taken), done


def test_help_is_light() -> None:
    """It imports neither torch nor numpy nor any command, and takes little more time than usual imports."""
    usual, _ = cpu_seconds(USUAL)
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from kernelscope.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    taken, done = cpu_seconds(code, 5 * usual)
    assert "kernelscope why" in done.stdout
    loaded = done.stderr.split()
    heavy = ("torch", "numpy", "sqlite3", "subprocess", "kernelscope.cli.programs", "kernelscope.cli.runs")
    assert not [name for name in loaded if name.startswith(heavy)], loaded
    assert taken <= 5 * usual, (taken, usual)
