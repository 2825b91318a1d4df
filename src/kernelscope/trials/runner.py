"""Runs trials for a search: each once, or as often as a flaky failure needs, and writes each down."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from kernelscope.errors import RunError

from .failure_signature import Failure
from .flakiness import MOST, confidence_of, repeats_needed
from .journal import Journal
from .settings import PASSED, Outcome, Settings, Switch

_RUNS_OF_A_FLAKY_ONE = 8
Progress = Callable[[str, Outcome, float], None]  # what was tried, how it ended, seconds per compiling trial


class Runner(Protocol):
    """Where trials run: in this process, or in others."""

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome: ...
    def found(self) -> list[Switch]:
        """The switches that the last trial with `discover` met."""


class Trials:
    """The unchanged program first; then whether it still fails with this or that switched off."""

    def __init__(
        self, runner: Runner, journal: Journal, failure: Failure, *, confidence: float, progress: Progress
    ) -> None:
        self._runner, self._journal, self._failure = runner, journal, failure
        self._asked_confidence, self._progress = confidence, progress
        self._known: dict[Settings, Outcome] = {}
        self._compiled: Settings | None = None
        self._compile_seconds: list[float] = []
        self._start = perf_counter()
        self.count = self.resumed = 0
        self.failed = self.runs = 0
        self.repeats = 1

    @property
    def seconds(self) -> float:
        return perf_counter() - self._start

    @property
    def confidence(self) -> float:
        return confidence_of(self.repeats, self.failed, self.runs) if self.failed else 0.0

    # -- the unchanged program -------------------------------------------------------------------------

    def baseline(self, runs: int) -> Outcome:
        """Run it a few times: does it fail, and how often? The first failure, or the last outcome."""
        if not 2 <= runs <= MOST:
            raise RunError(f"--runs {runs}: use a number from 2 to {MOST}")
        first: Outcome | None = None
        last = Outcome(PASSED)
        while self.runs < runs:
            last = self._once(Settings(), "the program as it is", discover=True)
            self.runs += 1
            if self._failure.is_met_by(last):
                self.failed += 1
                first = first or last
            if 0 < self.failed < self.runs:
                runs = max(runs, _RUNS_OF_A_FLAKY_ONE)
        if first is None:
            return last
        self.repeats = repeats_needed(self.failed, self.runs, self._asked_confidence)
        self._known[Settings()] = first
        return first

    def _meet(self, found: list[Switch]) -> None:
        """A run of a flaky program may not get to everything."""
        known = {(switch.axis, switch.name): switch for switch in self._journal.switches}
        new = [switch for switch in found if (switch.axis, switch.name) not in known]
        if new:
            self._journal.found([*known.values(), *new])

    @property
    def switches(self) -> list[Switch]:
        return self._journal.switches

    # -- with something switched off -------------------------------------------------------------------

    def is_known(self, settings: Settings) -> bool:
        return settings in self._known

    def know(self, settings: Settings, as_of: Settings) -> None:
        """Both are the same program: what came of one trial is what comes of the other."""
        self._known[settings] = self._known[as_of]

    def fails(self, settings: Settings, what: str) -> bool:
        return self._failure.is_met_by(self.outcome(settings, what))

    def outcome(self, settings: Settings, what: str) -> Outcome:
        """The failure, if it shows in any repeat."""
        if settings not in self._known:
            outcome = self._once(settings, what)
            for _ in range(self.repeats - 1):
                if outcome.kind != PASSED:
                    break
                outcome = self._once(settings, what)
            self._known[settings] = outcome
        return self._known[settings]

    def _once(self, settings: Settings, what: str, *, discover: bool = False) -> Outcome:
        outcome = self._journal.take(settings)
        if outcome is not None:
            self.resumed += 1
        else:
            outcome = self._runner.run(settings, discover=discover)
            if self._compiled != settings.of_compiler:
                self._compile_seconds.append(outcome.seconds)
            self._compiled = settings.of_compiler
            if discover:
                self._meet(self._runner.found())
            self._journal.add(settings, outcome)
        self.count += 1
        last = self._compile_seconds[-4:]
        self._progress(what, outcome, sum(last) / len(last) if last else 0.0)
        return outcome
