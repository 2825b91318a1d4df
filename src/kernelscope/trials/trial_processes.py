"""The parent's side of trials in other processes: starts, asks, awaits and kills them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter, sleep
from typing import IO, Any

from kernelscope.errors import RunError
from kernelscope.private_files import FILE, make_folder, open_private, write_text
from kernelscope.processes.process_trees import end_group, end_orphan, end_tree, handle_of, is_running
from kernelscope.processes.quick_start import torch_is_for_gpus
from kernelscope.text.amounts import counted
from kernelscope.text.process_ends import signal_name

from .outcome import KILLED, TIMED_OUT, Outcome
from .settings import FOUND, Settings, Switch

_ZYGOTE = ("-m", "kernelscope.trials.zygote")
_GPUS = "this torch is built for GPUs, which a forked process cannot use"


class Workers:
    """Runs each trial in a child process; a trial of code that a child has compiled goes to that child."""

    def __init__(
        self, job: dict[str, Any], home: Path, *, timeout: float, fork: bool = True,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self._home, self.timeout, self._say = home, timeout, say
        shutil.rmtree(home / "caches", ignore_errors=True)  # what lies there is executed: only our own
        for folder in ("logs", "caches"):
            make_folder(home / folder, exist_ok=True)
        self._caches = folder_to_compile_in(home)
        job = job | {"caches": str(self._caches)}
        self._job = home / "job.json"
        self._job.unlink(missing_ok=True)
        write_text(self._job, json.dumps(job | {"home": str(home)}))
        self.forks = fork
        self.notes: list[str] = []  # on all its trials
        self._zygote: Zygote | None = None
        self._child: Child | None = None
        self._next: Child | None = None
        self._compiled: Settings | None = None
        self.children = 0
        self._asked = len(list((home / "logs").glob("trial-*.log")))

    def get_ready(self) -> None:
        """Start the process that trials are forked from, if they can be, and wait for it."""
        if not self.forks or self._zygote is not None:
            return
        why = _GPUS if torch_is_for_gpus() else ""
        if not why:
            self._zygote = Zygote(self._job, self._home)
            why = self._zygote.why_not_forked()
        if why:
            self.forks = False
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None
            self.notes.append(f"each trial starts a new process instead of a fork: {why}")
            self._say(self.notes[-1])

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome:
        self.get_ready()
        start = perf_counter()
        if self._child is None or self._compiled != settings.of_compiler:
            self._start(settings)
        assert self._child is not None
        self._asked += 1
        request = {"settings": settings.to_json(), "discover": discover, "number": self._asked}
        try:
            answer = self._child.ask(request, self.timeout)
        except BaseException:
            self._end_child()
            raise
        if answer is None:
            outcome = self._end_child() or Outcome(TIMED_OUT, f"after {self.timeout:.0f} s")
        elif "error" in answer:
            raise RunError(answer["error"])
        else:
            outcome = Outcome.from_json(answer["outcome"])
            if answer["spent"]:
                self._end_child()
        return outcome.lasting(perf_counter() - start)

    def found(self) -> list[Switch]:
        """The switches that the last trial with `discover` met."""
        try:
            lines = (self._home / FOUND).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # the last line of a process that died
                found.append(Switch.from_json(json.loads(line)))
        return found

    def last_log(self) -> str:
        """What the program printed in the last trial."""
        log = self._home / "logs" / f"trial-{self._asked}.log"
        return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""

    def close(self) -> None:
        try:
            self._end_child()
            if self._next is not None:
                self._next.end()
        finally:
            if self._zygote is not None:
                self._zygote.close()
            self._job.unlink(missing_ok=True)  # it has the command with its secrets
            for folder in (self._caches, self._home / "caches"):
                shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()

    def _start(self, settings: Settings) -> None:
        self._end_child()
        self._child, self._next = self._next or self._new_child(), None
        self._compiled = settings.of_compiler
        if self._zygote is None:  # the next one loads torch while this one compiles
            self._next = self._new_child()

    def _new_child(self) -> Child:
        self.children += 1
        requests, answers = (str(self._home / f"{name}-{self.children}") for name in ("ask", "tell"))
        for path in (requests, answers):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.mkfifo(path, FILE)
        start = self._zygote.fork if self._zygote is not None else self._spawn
        return Child(start(requests, answers), self._zygote, requests, answers)

    def _spawn(self, requests: str, answers: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "kernelscope.trials.child", str(self._job), requests, answers]
        with open_private(self._home / "logs" / "children.log", "a", encoding="utf-8") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _end_child(self) -> Outcome | None:
        child, self._child = self._child, None
        return None if child is None else child.end()


def folder_to_compile_in(home: Path) -> Path:
    """The search's own folder, unless its path has a space: Inductor's compiler commands break at one."""
    if len(str(home.absolute()).split()) > 1:
        return Path(mkdtemp(prefix="kernelscope-bisect-"))
    return home / "caches"


class Child:
    """One process that runs trials; a forked one is a child of the zygote, which waits for it."""

    def __init__(
        self, process: int | subprocess.Popen[bytes], zygote: Zygote | None, requests: str, answers: str
    ) -> None:
        self.process, self._zygote = process, zygote
        # A forked one is not our child; a handle can kill it even after its parent has ended.
        self._handle = handle_of(process) if isinstance(process, int) else -1
        self._paths = (requests, answers)
        # For reading and writing, so that opening does not wait for the other side, which may have died.
        self._ask = os.open(requests, os.O_RDWR)
        self._tell = os.open(answers, os.O_RDONLY | os.O_NONBLOCK)
        self._text = b""

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any] | None:
        """The answer; None if it died or took too long."""
        os.write(self._ask, json.dumps(request).encode() + b"\n")
        deadline = perf_counter() + timeout
        while b"\n" not in self._text:
            left = deadline - perf_counter()
            if left <= 0:
                return None
            select.select([self._tell], [], [], min(left, 0.5))
            if not self._read() and not self.is_running() and not self._read():
                return None
        line, _, self._text = self._text.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> bool:
        try:
            text = os.read(self._tell, 1 << 20)
        except BlockingIOError:
            return False
        if not text:  # the other end is not open yet, or no longer
            sleep(0.01)
        self._text += text
        return bool(text)

    def is_running(self) -> bool:
        if not isinstance(self.process, int):
            return self.process.returncode is None and is_running(self.process.pid)
        try:  # the zygote waits for it in `end` only: until then the number is its own
            stat = Path(f"/proc/{self.process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"

    def end(self) -> Outcome | None:
        """Kill it; the outcome, if it had ended before."""
        try:
            was_running, status = self._killed()
        finally:
            for end in (self._ask, self._tell, self._handle):
                if end >= 0:
                    os.close(end)
            for path in self._paths:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        return None if was_running else Outcome(KILLED, _how(status))

    def _killed(self) -> tuple[bool, int]:
        """Whether it was running before, and its status."""
        if isinstance(self.process, int):
            assert self._zygote is not None
            try:
                return self._zygote.end(self.process)
            except RunError:  # the zygote has died
                end_orphan(self.process, self._handle)
                raise
        was_running = self.is_running()
        if self.process.returncode is None:
            end_group(self.process.pid)
        return was_running, self.process.wait()


def _how(status: int) -> str:
    return f"killed by {signal_name(-status)}" if status < 0 else f"ended with exit status {status}"


class Zygote:
    def __init__(self, job: Path, home: Path, program: Sequence[str] = _ZYGOTE) -> None:
        # Otherwise numpy's library starts threads when it is loaded, which prevents forking.
        words = ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, *program, str(job)]
        with open_private(home / "logs" / "zygote.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._log = home / "logs" / "zygote.log"

    def why_not_forked(self) -> str:
        """Its first answer: why it cannot be forked; empty if it can."""
        threads: list[str] | None = self._answer()["threads"]
        if threads is None:
            return "this system does not list the threads of a process"
        if not threads:
            return ""
        count = counted(len(threads), "more thread")
        return f"the process to fork from has {count} ({', '.join(dict.fromkeys(threads))})"

    def fork(self, requests: str, answers: str) -> int:
        return int(self._ask({"requests": requests, "answers": answers}, "pid")["pid"])

    def end(self, pid: int) -> tuple[bool, int]:
        """Kill a trial: whether it was still running, and its status."""
        answer = self._ask({"end": pid}, "status")
        return bool(answer["was_running"]), int(answer["status"])

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a request that it never got
                    pipe.close()
        end_tree(self.process)  # also a trial whose start has been interrupted

    def _ask(self, request: dict[str, Any], about: str) -> dict[str, Any]:
        pipe: IO[bytes] | None = self.process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._gone() from None
        while about not in (answer := self._answer()):
            pass  # the answer to a request that was interrupted
        return answer

    def _answer(self) -> dict[str, Any]:
        pipe = self.process.stdout
        assert pipe is not None
        for line in pipe:
            with contextlib.suppress(ValueError):  # what torch prints while it loads
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
        raise self._gone()

    def _gone(self) -> RunError:
        status = self.process.wait()
        logged = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if status >= 0 and logged:
            return RunError(f"trials cannot be started: {logged[-1]}")
        why = "; check whether memory ran out" if status == -signal.SIGKILL else ""
        return RunError(f"trials cannot be started: the process to fork from ended ({_how(status)}){why}")
