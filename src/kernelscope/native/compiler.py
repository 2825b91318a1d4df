"""The C++ compiler of this machine: which one it is, and how to run it."""

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
from contextlib import suppress
from pathlib import Path

from kernelscope import config

# On ARM, -march does not imply -mtune.
NATIVE = ("-march=native", "-mtune=native")
_VERSION_SECONDS = 60
_LINES_SHOWN = 40
# Lines of /proc/cpuinfo that differ between cores, or from one moment to the next.
_CHANGING = ("cpu MHz", "processor", "bogomips", "BogoMIPS", "apicid", "initial apicid", "core id")


class NativeError(RuntimeError):
    """A library cannot be built or loaded; the message says why and what to do."""


def compiler() -> list[str]:
    """The command of the first C++ compiler that is installed."""
    tried = config.compilers()
    for name in tried:
        command = shlex.split(name)
        if command and (path := shutil.which(command[0])):
            return [path, *command[1:]]
    raise NativeError(
        f"there is no C++ compiler (looked for {', '.join(tried)}); "
        "install g++ (Debian, Ubuntu: apt-get install g++), or set CXX"
    )


def identity(command: Sequence[str], flags: Sequence[str]) -> str:
    """Everything besides the source that decides what a compiler makes of it."""
    return "\0".join([*command, _version(tuple(command)), *flags, processor()])


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    return run([*command, "--version"], _VERSION_SECONDS).stdout


@functools.cache
def processor() -> str:
    """What decides which instructions -march=native may use: a home folder can be shared between machines."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = platform.processor()
    lines = [line for line in first.splitlines() if not line.startswith(_CHANGING)]
    return "\n".join([platform.machine(), *lines])


def processor_name() -> str:
    """The same as a short name for a folder."""
    return f"{platform.machine()}-{hashlib.sha256(processor().encode()).hexdigest()[:16]}"


def compile_cpp(command: Sequence[str], seconds: int, advice: str = "") -> None:
    """Run the compiler and raise NativeError with its own words when it fails."""
    done = run(command, seconds, advice)
    if done.returncode:
        output = done.stderr.strip() or f"exit status {done.returncode}"
        shown = "\n".join(output.splitlines()[:_LINES_SHOWN])
        raise NativeError(f"the C++ compiler failed:\n{shlex.join(command)}\n{shown}")


def run(command: Sequence[str], seconds: int, advice: str = "") -> subprocess.CompletedProcess[str]:
    """Run a compiler; one that takes too long is killed with every process that it started."""
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
        raise NativeError(f"the compiler {command[0]} does not run: {error}") from error
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(child)
        raise NativeError(
            f"the compiler took more than {seconds} s and was stopped{advice}:\n{shlex.join(command)}"
        ) from None
    except BaseException:  # Ctrl-C does not reach a session of its own
        _end(child)
        raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def _end(child: subprocess.Popen[str]) -> None:
    """Kill it and its group; once it has been waited for, its number may be another process's."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
