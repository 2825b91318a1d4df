"""Runs programs in forks of one process that has imported torch and its compiler, and has compiled nothing.

Importing them and the start of the first compilation take up to ten CPU seconds. A test of the start of
Python itself, of variables that torch reads when it is imported, or of `kernelscope run`, needs `subprocess`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read when Python starts or torch is imported: a fork has those of its parent.
_READ_EARLY = ("TORCH", "OMP_", "MKL_", "PYTHON", "KERNELSCOPE_")
_READ_LATE = ("TORCHINDUCTOR_CACHE_DIR", "PYTHONPATH")
_PATIENCE = 20.0  # seconds in which a process that was told to end ends

_SERVER = """
import gc, json, os, runpy, sys

def prepare(request):
    "Makes this process what `python WORDS` would be."
    for number, name in enumerate((os.devnull, request["out"], request["err"])):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = given + [path for path in sys.path if path not in given + before]

def run(words):
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    elif words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")

before = sys.path[:1] + [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
import torch
import torch._dynamo, torch._inductor.async_compile, torch._inductor.codecache, torch._inductor.compile_fx
from torch._inductor import codecache, cpu_vec_isa
from torch._inductor.fx_passes import joint_graph
from torch._inductor.runtime import triton_compat
# What the first compilation finds out about this machine, and the patterns that it loads.
codecache.torch_key(), cpu_vec_isa.valid_vec_isa_list()
if triton_compat.HAS_TRITON:
    triton_compat.triton_key()
joint_graph.lazy_init(torch.device("cpu"))
gc.freeze()  # so that a fork's garbage collector does not copy all of it
request = None
for line in iter(sys.stdin.readline, ""):
    asked = json.loads(line)
    if "wait" in asked:
        print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        request = asked
        break
    print(pid, flush=True)
if request is not None:  # the program ends as every program does, with what is registered for its end
    prepare(request)
    run(request["words"])
"""


@dataclass(frozen=True)
class Started:
    """A program that was started."""

    pid: int
    words: list[str]
    out: Path
    err: Path


class WarmPython:
    """Close it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        # Inductor would start workers when it is imported, and a process with threads is not forked.
        self._environment = {**environment, "TORCH_WARM_POOL": "0"}
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run([sys.executable, *words], capture_output=True, text=True)`."""
        return self.wait(self.start(*words, cwd=cwd, env=env))

    def run_together(self, *programs: Sequence[str | Path]) -> list[subprocess.CompletedProcess[str]]:
        """Several programs at the same time, each given by its words."""
        try:
            return [self.wait(each) for each in [self.start(*words) for words in programs]]
        except BaseException:
            self._kill()
            raise

    def start(
        self, *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Started:
        """Begin to run a program; wait for it."""
        environment = {**(os.environ if env is None else env), "TORCH_WARM_POOL": "0"}
        for name in environment.keys() | self._environment.keys():
            if name.startswith(_READ_EARLY) and name not in _READ_LATE:
                assert environment.get(name) == self._environment.get(name), f"{name} needs a new process"
        number = next(self._numbers)
        out, err = self._folder / f"{number}.out", self._folder / f"{number}.err"
        request: dict[str, Any] = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "environment": environment,
            "out": str(out),
            "err": str(err),
        }
        return Started(self._asked(request), request["words"], out, err)

    def wait(self, program: Started) -> subprocess.CompletedProcess[str]:
        status = self._asked({"wait": program.pid})
        said = program.out.read_text(), program.err.read_text()
        return subprocess.CompletedProcess(program.words, status, *said)

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # it ends when its input does
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
            self._kill()

    def _kill(self) -> None:
        """Kills it with its programs. The next program gets a new one, even while this one still ends."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            warnings.warn(f"process {process.pid} was killed, and has not ended", stacklevel=2)

    def _asked(self, request: dict[str, Any]) -> int:
        try:
            return int(self._answer(json.dumps(request)))
        except BaseException:  # the time of the test is over: the program must not outlive it
            self._kill()
            raise

    def _answer(self, question: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(question + "\n")
        process.stdin.flush()
        return process.stdout.readline()
