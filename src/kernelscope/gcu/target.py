"""Handing a program to a real Choreo compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

from .toolchain import ToolchainError, run

SECONDS = 300


def hand_over(target: str, file: Path) -> str:
    """Let the compiler of another target compile a `.co` file; what it said.

    What runs here is always the CPU build: this checks the text against the real compiler.
    """
    name = "choreo" if target in ("gcu", "choreo") else target
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(
            f"CONDUCTOR_TARGET={target}: there is no `{name}` compiler on the PATH. "
            "Install it, or unset CONDUCTOR_TARGET to build for the CPU."
        )
    output = file.with_suffix(f".{name}.o")
    done = run([path, "-c", str(file), "-o", str(output)], SECONDS)
    said = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise ToolchainError(f"{path} refused {file} (exit status {done.returncode}):\n{said}")
    return f"{path} compiled {file} to {output}" + (f"\n{said}" if said else "")
