"""Kernels from the folder of built ones; those that are missing are built by another process.

They are built several at a time, and ahead of use where a recording knows that it will need them.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernelscope.native import progress
from kernelscope.native.library_cache import cache_folder

from .kernel_files import KernelFile, Spec, read

_NICENESS = 5  # while the program compiles its own; what it waits for is built by a process without it
_WAIT_SECONDS = 180
_SAYS_EVERY = 5.0  # seconds of waiting
# The shell is gone at once, so that the program gets no child process that it does not know.
_SHELL = 'exec 3<&0; "$@" <&3 3<&- &'


class NotBuilt(RuntimeError):
    """Why a kernel could not be built."""


class KernelBuilds:
    """The kernels for one kind of GPU."""

    def __init__(self, arch: int, triton: str, folder: Path | None = None) -> None:
        self._arch, self._triton, self._folder = arch, triton, folder or folder_for_kernels()
        self._lock = threading.RLock()
        self._builders: list[_Builder] = []
        self._failed: dict[str, str] = {}  # by file: why
        self._waited = 0.0  # seconds, in all
        self._says_after = progress.AFTER

    def after_fork(self) -> None:
        """In a child that was forked: what builds, builds for its parent."""
        self._lock = threading.RLock()
        self._builders = []

    def ahead(self, specs: Sequence[Spec]) -> None:
        """Have these built, and do not wait; those that are there already cost nothing."""
        with self._lock:
            under_way = {name for builder in self._builders for name in builder.wanted}
            missing = [
                spec
                for spec in dict.fromkeys(specs)
                if (file := self._file(spec)).name not in under_way | self._failed.keys()
                and not file.exists()
            ]
            if missing:
                names = {self._file(spec).name: spec.name for spec in missing}
                self._builders.append(_Builder(self._job(missing), names))

    def get(self, spec: Spec, related: Sequence[Spec] = ()) -> KernelFile:
        """Wait for a kernel; `related` are built with it, because they will be needed soon."""
        file = self._file(spec)
        if (known := read(file)) is not None:
            return known
        with self._lock:
            if file.exists():  # damaged
                file.unlink(missing_ok=True)
            self.ahead([spec, *related])
            start = time.monotonic()
            try:
                return self._wait(file)
            finally:
                self._waited += time.monotonic() - start

    def _wait(self, file: Path) -> KernelFile:
        start = time.monotonic()
        while (waited := time.monotonic() - start) < _WAIT_SECONDS:
            for builder in self._builders:
                self._failed |= builder.news(0.01)
            if (known := read(file)) is not None:
                return known
            if self._waited + waited >= self._says_after:
                self._says_after = self._waited + waited + _SAYS_EVERY
                progress.say(self._progress())
            if file.name in self._failed:
                raise NotBuilt(self._failed[file.name])
            if not any(file.name in builder.wanted for builder in self._builders):
                raise NotBuilt("the process that builds it ended")
        raise NotBuilt(f"it took more than {_WAIT_SECONDS} s")

    def _progress(self) -> str:
        wanted = sum(builder.count for builder in self._builders)
        left = sum(len(builder.wanted) for builder in self._builders)
        return f"building GPU kernels for values, once on this machine: {wanted - left} of {wanted} are ready"

    def _file(self, spec: Spec) -> Path:
        return spec.file(self._folder, self._arch, self._triton)

    def _job(self, specs: Sequence[Spec]) -> dict[str, object]:
        return {
            "path": sys.path,
            "specs": [spec.to_json() for spec in specs],
            "folder": str(self._folder),
            "arch": self._arch,
            "triton": self._triton,
            "at_once": max(1, (os.cpu_count() or 1) * 3 // 4),
            "nice": _NICENESS,
        }


class _Builder:
    """A process that builds some kernels."""

    def __init__(self, job: dict[str, object], names: dict[str, str]) -> None:
        self.wanted = names  # files that it has not reported yet
        self.count = len(names)
        self._rest = b""
        job_end, self._open = os.pipe()  # is closed when this process ends, and then it ends as well
        self._news, news_end = os.pipe()
        script = str(Path(__file__).with_name("builder.py"))
        try:
            subprocess.run(
                ["/bin/sh", "-c", _SHELL, "sh", sys.executable, "-I", "-S", script],
                stdin=job_end,
                stdout=news_end,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                check=True,
                cwd="/",
            )
            os.write(self._open, json.dumps(job).encode() + b"\n")
        except (OSError, subprocess.SubprocessError):
            self.wanted = {}
        finally:
            os.close(job_end)
            os.close(news_end)

    def news(self, seconds: float) -> dict[str, str]:
        """What it has failed to build, and why, since this was last called."""
        failed: dict[str, str] = {}
        if not self.wanted:
            return failed
        ready, _, _ = select.select([self._news], [], [], seconds)
        if not ready:
            return failed
        read_now = os.read(self._news, 1 << 16)
        *lines, self._rest = (self._rest + read_now).split(b"\n")
        for line in lines:
            told = json.loads(line)
            self.wanted.pop(told.get("built") or told["failed"], None)
            if "failed" in told:
                failed[told["failed"]] = told["why"]
        if not read_now:
            self.wanted = {}
        if not self.wanted:
            os.close(self._news)
            os.close(self._open)
        return failed


@cache
def folder_for_kernels() -> Path:
    """The folder of built libraries, or one for this process alone."""
    try:
        return cache_folder()
    except OSError:
        made = tempfile.TemporaryDirectory(prefix="kernelscope-")
        atexit.register(made.cleanup)
        return Path(made.name)
