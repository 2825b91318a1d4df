"""A process that takes and gives JSON lines: on this machine, or on one of a Ray cluster."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from kernelscope.processes.cluster.machines import Machine
from kernelscope.processes.cluster.place import host, move_to, place_here

ROOT = Path(__file__).parents[2]
_GRACE_S = 60.0  # for an answer of a machine of the cluster, more than what it was given


class LineProcess:
    """Python on this machine."""

    def __init__(self, words: list[str], environment: dict[str, str], log: str) -> None:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        self._log = open(log, "a")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=os.environ | environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True,
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def send(self, request: dict[str, Any]) -> bool:
        """False if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def next(self, seconds: float) -> dict[str, Any] | None:
        """None if it has ended, or gives nothing in this time."""
        try:
            return self._answers.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            return None

    def status(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


class _Held:
    """A process of Ray that has started one and passes on what it is asked."""

    def __init__(self, place: dict[str, Any], *arguments: Any) -> None:
        self._place, self._arguments = place, arguments
        self._process: LineProcess | None = None

    def begin(self) -> str:
        why = move_to(self._place)
        if not why:
            self._process = LineProcess(*self._arguments)
        return why

    def ask(self, method: str, *arguments: Any) -> Any:
        assert self._process is not None
        return getattr(self._process, method)(*arguments)

    def where(self) -> str:
        return host()


class RayLineProcess:
    """Python on a machine of the cluster; WorkerLost if that dies."""

    def __init__(self, ray: Any, words: list[str], environment: dict[str, str], log: str) -> None:
        program = str(ROOT.joinpath(*words[1].split(".")).with_suffix(".py"))  # after -m
        self._machine = Machine(ray, _Held, place_here([program]), words, environment, log)
        if why := self._machine.answer(self._machine.ask("begin")):
            raise SystemExit(f"a machine of the Ray cluster cannot be used: {why}")
        self.host: str = self._machine.answer(self._machine.ask("where"))

    def _ask(self, method: str, *arguments: Any, seconds: float = 0.0) -> Any:
        return self._machine.answer(self._machine.ask("ask", method, *arguments), seconds + _GRACE_S)

    def send(self, request: dict[str, Any]) -> bool:
        return bool(self._ask("send", request))

    def next(self, seconds: float) -> dict[str, Any] | None:
        answer: dict[str, Any] | None = self._ask("next", seconds, seconds=seconds)
        return answer

    def status(self) -> int | None:
        status: int | None = self._ask("status")
        return status

    def stop(self) -> None:
        self._machine.end()  # its children end with it
