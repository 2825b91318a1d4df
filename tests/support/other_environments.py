"""Python in an environment that is not that of the tests: other variables, limits, mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import kernelscope

SOURCE = Path(kernelscope.__file__).parent.parent


def python(
    *words: str | Path,
    cwd: Path,
    environ: dict[str, str],
    before: Callable[[], None] | None = None,
    under: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """What Python says in an environment like ours, but for these variables."""
    wanted = {**os.environ, "PYTHONPATH": str(SOURCE), **environ}
    return subprocess.run(
        [*under, sys.executable, *map(str, words)],
        cwd=cwd,
        env=wanted,
        preexec_fn=before,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=600,
        check=False,
    )


def namespace(mounts: str) -> list[str]:
    """Words that start a program where these mounts are made; skips where that is not allowed."""
    words = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("this user may not mount anything (unshare was refused)")
    return words
