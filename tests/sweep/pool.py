"""Worker processes that try jobs: one that hangs or dies loses its sample, and is started again."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.processes.cluster.machines import WorkerLost

from .databases import Job
from .line_process import ROOT, LineProcess, RayLineProcess

_SAMPLES_PER_PROCESS = 150  # compiled code is never unloaded
_MOST_LOSSES = 2  # workers that a job may take with it
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
    ray: Any = None  # connected to a cluster, whose machines have the workers


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
            losses = 0
            while time.monotonic() < self._settings.ends:
                if worker is None or worker.tried >= _SAMPLES_PER_PROCESS:
                    if worker is not None:
                        worker.stop()
                    worker = _Worker(self._settings, number)
                try:
                    is_over = worker.run(job, skip, self._note)
                except (WorkerLost, TimeoutError) as lost:
                    is_over, losses = False, losses + 1
                    print(f"{job}: a worker of the Ray cluster died: {lost}", flush=True)
                    if losses == _MOST_LOSSES:
                        self._note({"job": str(job), "event": "end", "problem": f"its workers died: {lost}"})
                        is_over = True
                        worker.stop()
                        worker = None
                if is_over:
                    break
                if worker is not None:
                    worker.stop()
                worker = None
        if worker is not None:
            worker.stop()


class _Worker:
    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings
        self.tried = 0
        environment = {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "OMP_NUM_THREADS": str(settings.threads),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(settings.cache / "inductor"),
            "TRITON_CACHE_DIR": str(settings.cache / "triton"),
            "TMPDIR": str(settings.cache),
        }
        words = ["-m", "tests.sweep.worker", settings.device, str(settings.samples)]
        words.append("first" if settings.first else "spread")
        self._log = str(settings.cache / f"worker{number}" / "log")
        self._process: LineProcess | RayLineProcess
        if settings.ray is None:
            self._process = LineProcess(words, environment, self._log)
        else:
            self._process = RayLineProcess(settings.ray, words, environment, self._log)
        self._is_ready = False

    def run(self, job: Job, skip: set[int], note: Callable[[dict[str, Any]], None]) -> bool:
        """Whether the job is over; else the worker is lost, and what it has tried is in `skip`."""
        if not self._is_ready and self._next(_START_S) is None:
            raise SystemExit(f"a worker of the sweep does not start; see {self._log}")
        self._is_ready = True
        if not self._process.send({"job": [job.kind, job.name, job.dtype], "skip": [*skip]}):
            return False
        sample, begun = -1, time.monotonic()
        while True:
            answer = self._next(self._settings.timeout * (1 if sample >= 0 else 4))
            if answer is None:
                if time.monotonic() < self._settings.ends:
                    status = self._process.status()
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
        return self._process.next(min(seconds, self._settings.ends - time.monotonic()))

    def stop(self) -> None:
        self.tried = _SAMPLES_PER_PROCESS
        self._process.stop()
