"""C++ to a shared library, with errors that say what to do."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelscope import config

HEADER = Path(__file__).parent / "choreo" / "choreo.h"
# -march=native does not imply -mtune on ARM. Signed overflow wraps, as in torch.
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-mtune=native", "-fno-math-errno", "-fno-trapping-math",
    "-funroll-loops", "-ffp-contract=fast", "-fwrapv", "-fopenmp", "-fPIC",
)  # fmt: skip


class ToolchainError(RuntimeError):
    """The C++ compiler is missing, failed, or took too long."""


@dataclass(frozen=True)
class Built:
    object: Path
    library: Path
    commands: tuple[str, ...]


def compiler() -> list[str]:
    """The C++ compiler's command."""
    tried = config.compilers()
    for name in tried:
        command = shlex.split(name)
        if command and (path := shutil.which(command[0])):
            return [path, *command[1:]]
    raise ToolchainError(
        f"the gcu backend needs a C++ compiler and found none (looked for {', '.join(tried)}). "
        "Install g++ (Debian, Ubuntu: apt-get install g++), or set CXX."
    )


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    done = run([*command, "--version"], 60)
    return done.stdout


def identity(flags: Sequence[str] = FLAGS) -> str:
    """Everything besides the program that decides what the compiler makes of it."""
    command = compiler()
    text = "\0".join(
        [*command, _version(tuple(command)), *flags, _processor(), HEADER.read_text(encoding="utf-8")]
    )
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _processor() -> str:
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = platform.processor()
    changing = ("cpu MHz", "processor", "bogomips", "BogoMIPS", "apicid", "initial apicid", "core id")
    return "\n".join([platform.machine(), *(x for x in first.splitlines() if not x.startswith(changing))])


def build(
    source: Path,
    stem: Path,
    *,
    seconds: int | None = None,
    flags: Sequence[str] = FLAGS,
    link: Sequence[str] = (),
) -> Built:
    """Compile a translation unit to `stem.o` and `stem.so`."""
    command = compiler()
    object_, library = stem.with_suffix(".o"), stem.with_suffix(".so")
    include = f"-I{HEADER.parent}"
    steps = [
        [*command, *flags, include, "-c", str(source), "-o", str(object_)],
        [*command, *flags, "-shared", str(object_), "-o", str(library), *link],
    ]
    limit = config.conductor_from_environment().compile_seconds if seconds is None else seconds
    for step in steps:
        done = run(step, limit)
        if done.returncode:
            said = done.stderr.strip() or f"exit status {done.returncode}"
            shown = "\n".join(said.splitlines()[:40])
            raise ToolchainError(f"the C++ compiler failed on {source}:\n{shlex.join(step)}\n{shown}")
    return Built(object_, library, tuple(shlex.join(step) for step in steps))


def run(command: Sequence[str], seconds: int) -> subprocess.CompletedProcess[str]:
    """Run the compiler; when it takes too long, end it with all that it started."""
    try:
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolchainError(f"the C++ compiler {command[0]} does not run: {error}") from error
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise ToolchainError(
            f"the C++ compiler took more than {seconds} s and was stopped; "
            f"CONDUCTOR_COMPILE_SECONDS sets the limit:\n{shlex.join(command)}"
        ) from None
    return subprocess.CompletedProcess(command, child.returncode, out, err)
