"""Processes of Ray that do tasks, several at once; one that dies loses its task, which another does again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from kernelscope.errors import RunError
from kernelscope.text.amounts import counted

from .machines import Machine, WorkerLost, finished, workers_of

MOST_LOSSES = 2  # workers that a task may take with it
_WAIT_S, _CLOSE_S = 0.5, 10.0
_LONG_S = 20.0  # without any worker: then it is reported


@dataclass(eq=False)
class Task:
    """A method of the workers and its arguments, which are plain data, and so is the answer."""

    method: str
    arguments: tuple[Any, ...]
    prefers: Hashable = None  # a worker that did such a task before
    losses: list[str] = field(default_factory=list)  # where and why workers died
    answer: Any = None
    is_running: bool = False


@dataclass(eq=False)
class _Worker:
    machine: Machine
    asked: Any  # not yet answered; first whether it can be used
    host: str = ""
    task: Task | None = None
    did: Hashable = None


class Pool:
    """Workers of one kind. Each is first asked to `begin`: it names its host, and why it cannot be used."""

    def __init__(
        self, ray: Any, kind: type, arguments: tuple[Any, ...], most: int, noun: str,
        say: Callable[[str], None], *, threads: int = 2,
    ) -> None:  # fmt: skip
        """With one thread a worker runs its tasks in the main thread, and cannot be closed meanwhile."""
        self._threads = threads
        self._ray, self._kind, self._arguments, self._noun, self._say = ray, kind, arguments, noun, say
        self.at_once = workers_of(ray, most)
        self._workers = [self._new_worker() for _ in range(self.at_once)]
        self._refused: list[str] = []
        self._hosts: dict[str, None] = {}
        self._reports: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """Where its tasks were done, and what was reported."""
        count = counted(len(self._hosts), "machine")
        where = f"{self._noun}s were made on {count} of a Ray cluster: {', '.join(self._hosts)}"
        return [*([where] if self._hosts else ()), *self._reports]

    def begin(self, task: Task) -> bool:
        """Whether an idle worker does it from now on."""
        idle = [worker for worker in self._workers if worker.asked is None]
        fitting = [worker for worker in idle if worker.did == task.prefers]
        worker = next(iter((*fitting, *idle)), None)
        if worker is not None:
            task.is_running, worker.task, worker.did = True, task, task.prefers
            self._hosts[worker.host] = None
            worker.asked = worker.machine.ask(task.method, *task.arguments)
        return worker is not None

    def is_better_elsewhere(self, task: Task) -> bool:
        """Whether no idle worker did such a task before, but a busy one did."""
        did = [worker for worker in self._workers if worker.did == task.prefers]
        return bool(did) and all(worker.asked is not None for worker in did)

    def wait(self, task: Task, then: Sequence[Task] = ()) -> Any:
        """The answer; WorkerLost if it takes one worker after the other with it. Also begins what is next."""
        begun, has_said = perf_counter(), False
        while task.answer is None:
            if not task.is_running:
                if len(task.losses) >= MOST_LOSSES:
                    raise WorkerLost(task.losses[-1])
                if not self.begin(task) and not self._workers:
                    raise RunError(f"no machine of the Ray cluster can be used: {self._refused[-1]}")
            if not has_said and not self._hosts and perf_counter() - begun > _LONG_S:
                has_said = True
                self._say("waiting for a worker of the Ray cluster: it starts, or no CPU or GPU is free")
            for each in then:
                if each.answer is None and not each.is_running and len(each.losses) < MOST_LOSSES:
                    self.begin(each)
            self.settle(_WAIT_S)
        return task.answer

    def settle(self, seconds: float) -> None:
        """Take the answers that are there; wait for the first one if there are none."""
        asked = {worker.asked: worker for worker in self._workers if worker.asked is not None}
        for each in finished(self._ray, [*asked], seconds) if asked else ():
            worker = asked[each]
            try:
                answer = worker.machine.answer(each)
            except WorkerLost as lost:
                self._lose(worker, str(lost))
                continue
            worker.asked = None
            if worker.task is not None:
                worker.task.answer, worker.task.is_running, worker.task = answer, False, None
            elif answer["why_not"]:
                self._refuse(worker, answer["why_not"])
            else:
                worker.host = answer["host"]

    def close(self) -> None:
        workers, self._workers = self._workers, []
        free = [w for w in workers if w.host and (w.task is None or self._threads > 1)]
        closing = [(worker, worker.machine.ask("close")) for worker in free]
        for worker, asked in closing:
            with suppress(WorkerLost, TimeoutError, RunError):
                worker.machine.answer(asked, _CLOSE_S)
        for worker in workers:
            worker.machine.end()

    def _lose(self, worker: _Worker, why: str) -> None:
        task = worker.task
        if task is None:  # it never began
            self._refuse(worker, why)
            return
        task.is_running = False
        task.losses.append(f"{worker.host}: {why}")
        is_last = len(task.losses) >= MOST_LOSSES
        again = "it is not tried again" if is_last else f"another worker makes the {self._noun} again"
        self._report(f"the worker on {worker.host} died during a {self._noun} ({why}); {again}")
        self._workers.remove(worker)
        self._workers.append(self._new_worker())

    def _refuse(self, worker: _Worker, why: str) -> None:
        self._workers.remove(worker)
        worker.machine.end()
        self._refused.append(why)
        if self._workers:
            self._report(f"a machine of the Ray cluster is not used: {why}")

    def _report(self, text: str) -> None:
        if text not in self._reports:
            self._reports[text] = None
            self._say(text)

    def _new_worker(self) -> _Worker:
        machine = Machine(self._ray, self._kind, *self._arguments, threads=self._threads)
        return _Worker(machine, machine.ask("begin"))
