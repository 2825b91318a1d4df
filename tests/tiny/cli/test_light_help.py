"""`kernelscope --help` comes at once: it loads nothing that it does not need."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import kernelscope


def test_help_is_light() -> None:
    """It imports neither torch nor numpy nor any command, and takes at most 0.15 s of CPU time."""
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from kernelscope.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(kernelscope.__file__).parents[1])}
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if taken[-1] <= 0.15:
            break
    assert "kernelscope why" in done.stdout
    loaded = done.stderr.split()
    heavy = ("torch", "numpy", "sqlite3", "subprocess", "kernelscope.cli.programs", "kernelscope.cli.runs")
    assert not [name for name in loaded if name.startswith(heavy)], loaded
    assert min(taken) <= 0.15, taken
