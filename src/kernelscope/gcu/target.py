"""Handing a program to a real Choreo compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernelscope.native.compiler import NativeError, run

SECONDS = 300


def hand_over(target: str, file: Path) -> str:
    """Let the compiler of another target compile a `.co` file; gives its output.

    What runs here is always the CPU build: this checks the text against the real compiler.
    """
    name = "choreo" if target in ("gcu", "choreo") else target
    path = shutil.which(name)
    if path is None:
        raise NativeError(
            f"CONDUCTOR_TARGET={target}: there is no `{name}` compiler on the PATH. "
            "Install it, or unset CONDUCTOR_TARGET to build for the CPU."
        )
    output = file.with_suffix(f".{name}.o")
    done = run([path, "-c", str(file), "-o", str(output)], SECONDS)
    output_text = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise NativeError(f"{path} failed on {file} (exit status {done.returncode}):\n{output_text}")
    return f"{path} compiled {file} to {output}" + (f"\n{output_text}" if output_text else "")
