"""Trials of candidates: each is compiled, run and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelscope.shadowing.api import shadow
from kernelscope.text.amounts import counted
from kernelscope.trials.failure_signature import FailureSignature, of_culprit, of_exception
from kernelscope.trials.gpu_faults import GpuLost, gpu_is_lost, wait_for_gpu
from kernelscope.trials.journal import Journal
from kernelscope.trials.outcome import FAILED, PASSED, Outcome

from .candidates import Candidate, copied

CandidateCheck = Callable[[Candidate], FailureSignature | None]


def shadow_check(candidate: Candidate) -> FailureSignature | None:
    """Compile, run and differentiate it under `shadow`: finds a wrong kernel, or an exception."""
    try:
        with shadow() as result:
            run_compiled(candidate)
            wait_for_gpu()
    except Exception as error:
        return of_exception(error)
    finally:
        torch.compiler.reset()
    return of_culprit(result.culprit) if result.culprit is not None else None


def run_compiled(candidate: Candidate) -> Any:
    """As the reduced script does."""
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
class CandidateTrials:
    """Runs trials of candidates, writes them to the journal and reports each."""

    check: CandidateCheck
    journal: Journal
    repeats: int = 1  # of a trial that passes, for flaky failures
    tell: Callable[[str], None] = lambda line: None
    count: int = 0  # without those from the journal
    seconds: float = 0.0

    def seconds_left(self, nodes: int) -> float:
        """An estimate: the trials of halving, and a few for the inputs."""
        expected = 2 * math.ceil(math.log2(max(2, nodes))) + 8
        return max(1, expected - self.count) * self.seconds / self.count if self.count else 0.0

    def outcome(self, candidate: Candidate) -> Outcome:
        known = self.journal.outcome(candidate.key)
        return known or self._run(candidate.key, candidate.size, lambda: self._first_failure(candidate))

    def _first_failure(self, candidate: Candidate) -> FailureSignature | None:
        for _ in range(self.repeats):
            failure = self.check(candidate)
            if failure is not None:
                return failure
        return None

    def _run(self, key: str, size: int, trial: Callable[[], FailureSignature | None]) -> Outcome:
        began = time.monotonic()
        self.journal.begin(key, nodes=size)
        try:
            failure = trial()
        except KeyboardInterrupt:
            self.journal.interrupt(key)
            raise
        if gpu_is_lost():
            raise GpuLost
        seconds = round(time.monotonic() - began, 3)
        outcome = Outcome(PASSED) if failure is None else Outcome(FAILED, str(failure), failure=failure)
        self.count += 1
        self.seconds += seconds
        self.journal.end(key, outcome.lasting(seconds))
        return outcome

    def find_wrong_nodes(self, key: str, size: int, search: Callable[[], list[str]]) -> list[str]:
        """Names of nodes that are wrong alone; none if the search raises, or has crashed before."""
        known = self.journal.outcome(key)
        if known is not None and known.kind != PASSED:
            return []
        found: list[str] = []
        text = ""

        def trial() -> None:
            nonlocal text
            try:
                found.extend(search())
                text = f"{len(found)} wrong"
            except Exception as error:
                text = f"inconclusive, {str(of_exception(error))[:80]}"

        self._run(key, size, trial)
        self.report(f"{counted(size, 'node')}, each alone: {text}")
        return found

    def fails_as(self, wanted: FailureSignature, candidate: Candidate) -> bool:
        outcome = self.outcome(candidate)
        is_same = outcome.failure is not None and wanted.is_same(outcome.failure)
        text = f"different: {outcome.what or outcome.kind:.60}" if outcome.kind != PASSED else PASSED
        note = f", {candidate.note}" if candidate.note else ""
        self.report(f"{counted(candidate.size, 'node')}{note}: {'same failure' if is_same else text}")
        return is_same

    def report(self, text: str) -> None:
        self.tell(f"trial {self.journal.count}: {text}")
