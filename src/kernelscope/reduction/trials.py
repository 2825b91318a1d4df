"""One trial: a candidate is compiled, run and judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernelscope.shadowing.api import shadow
from kernelscope.trials.gpu_faults import GpuLost, gpu_is_lost, wait_for_gpu

from .candidates import Candidate, copied
from .failures import Failure, of_culprit, of_exception
from .journal import Journal

Check = Callable[[Candidate], Failure | None]


def shadow_check(candidate: Candidate) -> Failure | None:
    """Compiled, run and differentiated under `shadow`: a kernel that is wrong, or what was raised."""
    try:
        with shadow() as result:
            run_compiled(candidate)
            wait_for_gpu()
    except Exception as error:
        return of_exception(error)
    finally:
        torch._dynamo.reset()
    return of_culprit(result.culprit) if result.culprit is not None else None


def run_compiled(candidate: Candidate) -> Any:
    """What the script that is written in the end does too."""
    given = [copied(v) for v in candidate.inputs]
    compiled = torch.compile(candidate.module, dynamic=candidate.dynamic or None)
    with torch.set_grad_enabled(candidate.differentiates):
        made = compiled(*given)
        wanted = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
        leaves = [t for t in given if isinstance(t, torch.Tensor) and t.requires_grad]
        if wanted and leaves:
            torch.autograd.grad(wanted, leaves, [torch.ones_like(t) for t in wanted], allow_unused=True)
    return made


@dataclass(slots=True)
class Trials:
    """Runs trials, remembers what came of them, and says how it goes."""

    check: Check
    journal: Journal
    repeats: int = 1  # of a trial that passes: a failure that comes and goes is waited for
    tell: Callable[[str], None] = lambda line: None
    count: int = 0  # that were run, not remembered
    seconds: float = 0.0
    smallest: int = 0

    def outcome(self, candidate: Candidate) -> Failure | str | None:
        """How it failed, None if it did not, or what became of a trial that never came back."""
        known = self.journal.outcome(candidate.key)
        if known is not None:
            return known.failure if known.is_over else known.how
        began = time.monotonic()
        with self._underway(candidate.key, candidate.size):
            failure = self._first_failure(candidate)
            if gpu_is_lost():
                raise GpuLost
        taken = time.monotonic() - began
        self.count += 1
        self.seconds += taken
        self.journal.end(candidate.key, failure, taken)
        return failure

    def _first_failure(self, candidate: Candidate) -> Failure | None:
        for _ in range(self.repeats):
            failure = self.check(candidate)
            if failure is not None:
                return failure
        return None

    @contextmanager
    def _underway(self, key: str, size: int) -> Iterator[None]:
        self.journal.begin(key, size)
        try:
            yield
        except KeyboardInterrupt:
            self.journal.interrupt(key)
            raise

    def look(self, key: str, size: int, at: Callable[[], list[str]]) -> list[str]:
        """Runs what is no part of the search; nothing is learnt of one that raises or does not come back."""
        if self.journal.has_lost(key):
            return []
        began = time.monotonic()
        with self._underway(key, size):
            found, how = _tried(at)
            if gpu_is_lost():
                raise GpuLost
        taken = time.monotonic() - began
        self.count += 1
        self.seconds += taken
        self.journal.end(key, None, taken)
        self.tell(f"trial {self.journal.trials}: {size} nodes, each by itself: {how}")
        return found

    def fails_as(self, wanted: Failure, candidate: Candidate) -> bool:
        found = self.outcome(candidate)
        same = isinstance(found, Failure) and wanted.is_same(found)
        if same:
            self.smallest = candidate.size
        how = "the same failure" if same else "passed" if found is None else f"another: {str(found)[:60]}"
        self.tell(f"trial {self.journal.trials}: {candidate.size} nodes{_noted(candidate)}: {how}")
        return same


def _tried(at: Callable[[], list[str]]) -> tuple[list[str], str]:
    try:
        found = at()
    except Exception as error:
        return [], f"cannot be told, {str(of_exception(error))[:80]}"
    return found, f"{len(found)} wrong"


def _noted(candidate: Candidate) -> str:
    return f", {candidate.note}" if candidate.note else ""
