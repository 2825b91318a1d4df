"""Worker processes that try jobs: one that hangs or dies loses its sample, and is started again."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .databases import Job

ROOT = Path(__file__).parents[2]
_SAMPLES_PER_PROCESS = 150  # compiled code is never unloaded
_START_S = 600.0  # with what is built once


@dataclass(frozen=True)
class Settings:
    device: str
    samples: int
    first: bool
    timeout: float  # seconds per sample
    ends: float  # when to stop, by the monotonic clock
    cache: Path  # of compiled kernels
    threads: int


class Pool:
    """Tries all jobs with several workers; `note` gets each line of the journal, from any thread."""

    def __init__(self, settings: Settings, note: Callable[[dict[str, Any]], None]) -> None:
        self._settings = settings
        self._note = note
        self._lock = threading.Lock()

    def run(self, jobs: list[Job], done: Mapping[str, set[int]], count: int) -> None:
        left = deque(jobs)
        threads = [
            threading.Thread(target=self._work, args=(left, done, number), daemon=True)
            for number in range(max(1, min(count, len(jobs))))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, left: deque[Job], done: Mapping[str, set[int]], number: int) -> None:
        worker: _Worker | None = None
        while time.monotonic() < self._settings.ends:
            try:
                job = left.popleft()
            except IndexError:
                break
            skip = set(done.get(str(job), ()))
            while time.monotonic() < self._settings.ends:
                if worker is None or worker.tried >= _SAMPLES_PER_PROCESS:
                    if worker is not None:
                        worker.stop()
                    worker = _Worker(self._settings, number)
                is_over = worker.run(job, skip, self._note)
                if is_over:
                    break
                worker.stop()
                worker = None
        if worker is not None:
            worker.stop()


class _Worker:
    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings
        self.tried = 0
        own = settings.cache / f"worker{number}"
        own.mkdir(parents=True, exist_ok=True)
        environment = {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "OMP_NUM_THREADS": str(settings.threads),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(settings.cache / "inductor"),
            "TRITON_CACHE_DIR": str(settings.cache / "triton"),
            "TMPDIR": str(settings.cache),
        }
        words = [sys.executable, "-m", "tests.sweep.worker", settings.device, str(settings.samples)]
        words.append("first" if settings.first else "spread")
        self._log = open(own / "log", "a")  # noqa: SIM115
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True, start_new_session=True,
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._is_ready = False

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def run(self, job: Job, skip: set[int], note: Callable[[dict[str, Any]], None]) -> bool:
        """Whether the job is over; else the worker is lost, and what it has tried is in `skip`."""
        if not self._is_ready and self._next(_START_S) is None:
            raise SystemExit(f"a worker of the sweep does not start; see {self._log.name}")
        self._is_ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(
                json.dumps({"job": [job.kind, job.name, job.dtype], "skip": [*skip]}) + "\n"
            )
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        sample, begun = -1, time.monotonic()
        while True:
            answer = self._next(self._settings.timeout * (1 if sample >= 0 else 4))
            if answer is None:
                if time.monotonic() < self._settings.ends:
                    status = self._process.poll()
                    how = "timeout" if status is None else "crash"
                    seconds = round(time.monotonic() - begun, 1)
                    skip.add(sample)
                    facts = {"status": how, "error": f"exit status {status}", "seconds": seconds}
                    note({"job": str(job), "sample": sample, **facts})
                    if sample < 0:  # the samples cannot be made
                        note({"job": str(job), "event": "end"})
                        self.stop()
                        return True
                return False
            if answer["event"] == "begin":
                sample, begun = answer["sample"], time.monotonic()
            elif answer["event"] == "done":
                self.tried += 1
                skip.add(answer["sample"])
                note({"job": str(job), "sample": answer["sample"], **answer["facts"]})
            elif answer["event"] == "end":
                note({"job": str(job), **answer})
                return True

    def _next(self, seconds: float) -> dict[str, Any] | None:
        left = min(seconds, self._settings.ends - time.monotonic())
        try:
            return self._answers.get(timeout=max(left, 0.01))
        except queue.Empty:
            return None

    def stop(self) -> None:
        self.tried = _SAMPLES_PER_PROCESS
        self._process.kill()
        self._process.wait()
        self._log.close()
