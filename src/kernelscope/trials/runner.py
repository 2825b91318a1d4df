"""Runs the trials of a bisection, repeats them if the failure is flaky, and writes them to the journal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol, cast

from kernelscope.errors import RunError

from .failure_signature import FailureSignature
from .journal import Journal
from .outcome import FAILED, KILLED, PASSED, RAISED, TIMED_OUT, Outcome
from .settings import Settings, Switch

MOST = 200  # repeats of one trial
_RUNS_OF_A_FLAKY_ONE = 8
_SWITCHES = "switches"  # in the journal: those that the baseline met
Progress = Callable[[str, Outcome, float], None]  # what was tried, how it ended, seconds per compiling trial


class SoughtFailure:
    """The failure that a bisection looks for."""

    def __init__(self, check: str, message: str = "") -> None:
        self._check = check
        self._message = message  # part of the exception's text
        self._signature: FailureSignature | None = None  # of the first exception

    def is_met_by(self, outcome: Outcome) -> bool:
        if self._check != "exception":
            return outcome.kind == FAILED
        if outcome.kind not in (RAISED, KILLED, TIMED_OUT) or self._message not in outcome.what:
            return False
        if self._message:
            return True
        self._signature = self._signature or outcome.signature
        return self._signature.is_same(outcome.signature)


class TrialHost(Protocol):
    """Where trials run: in this process, or in others."""

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome: ...
    def found(self) -> list[Switch]:
        """The switches that the last trial with `discover` met."""


class SpreadHost(TrialHost, Protocol):
    """A host that runs several trials at once."""

    at_once: int

    def expect(self, trials: Sequence[Settings], *, discover: bool) -> None:
        """Begin trials that may be asked for next."""


class TrialRunner:
    """Runs the baseline first; then tells whether it still fails with some switches off."""

    def __init__(
        self,
        host: TrialHost | SpreadHost,
        journal: Journal,
        failure: SoughtFailure,
        *,
        confidence: float,
        progress: Progress = lambda what, outcome, seconds: None,
    ) -> None:
        self._host, self._journal, self._failure = host, journal, failure
        self.at_once: int = getattr(host, "at_once", 1)
        self.switches = [Switch.from_json(each) for each in journal.notes.get(_SWITCHES, ())]
        self._wanted_confidence, self._progress = confidence, progress
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

    def baseline(self, runs: int) -> Outcome:
        """Run the baseline a few times; the first failure, or else the last outcome."""
        if not 2 <= runs <= MOST:
            raise RunError(f"runs={runs}: the baseline needs from 2 to {MOST} runs")
        first: Outcome | None = None
        last = Outcome(PASSED)
        self.expect([Settings()] * runs, discover=True)
        while self.runs < runs:
            before, last = last, self._once(Settings(), "baseline", discover=True)
            self.runs += 1
            if self._failure.is_met_by(last):
                self.failed += 1
                first = first or last
            elif before.kind == RAISED and not self.failed and last.signature == before.signature:
                break  # it raises each time, which is not what is sought
            if 0 < self.failed < self.runs:
                runs = max(runs, _RUNS_OF_A_FLAKY_ONE)
        if first is None:
            return last
        self.repeats = repeats_needed(self.failed, self.runs, self._wanted_confidence)
        self._known[Settings()] = first
        return first

    def _meet(self, found: list[Switch]) -> None:
        """A run of a flaky program may not meet all switches."""
        known = {(switch.axis, switch.name) for switch in self.switches}
        new = [switch for switch in found if (switch.axis, switch.name) not in known]
        if new:
            self.switches += new
            self._journal.note(_SWITCHES, [switch.to_json() for switch in self.switches])

    def is_known(self, settings: Settings) -> bool:
        return settings in self._known

    def know(self, settings: Settings, as_of: Settings) -> None:
        """Both are the same program, so a trial of one has the outcome of the other."""
        self._known[settings] = self._known[as_of]

    def fails(self, settings: Settings, what: str) -> bool:
        return self._failure.is_met_by(self.outcome(settings, what))

    def outcome(self, settings: Settings, what: str) -> Outcome:
        """The first outcome that is not a pass, of all repeats."""
        if settings not in self._known:
            self.expect([settings] * self.repeats)
            outcome = self._once(settings, what)
            for _ in range(self.repeats - 1):
                if outcome.kind != PASSED:
                    break
                outcome = self._once(settings, what)
            self._known[settings] = outcome
        return self._known[settings]

    def expect(self, trials: Sequence[Settings], *, discover: bool = False) -> None:
        """Trials that come next, as far as is known: a host of several machines begins them now."""
        if self.at_once > 1:
            new = [s for s in trials if s not in self._known and not self._journal.has(s.to_json())]
            cast(SpreadHost, self._host).expect(new[: self.at_once], discover=discover)

    def _once(self, settings: Settings, what: str, *, discover: bool = False) -> Outcome:
        outcome = self._journal.take(settings.to_json())
        if outcome is not None:
            self.resumed += 1
        else:
            outcome = self._host.run(settings, discover=discover)
            if self._compiled != settings.of_compiler:
                self._compile_seconds.append(outcome.seconds)
            self._compiled = settings.of_compiler
            if discover:
                self._meet(self._host.found())
            self._journal.end(settings.to_json(), outcome)
        self.count += 1
        last = self._compile_seconds[-4:]
        self._progress(what, outcome, sum(last) / len(last) if last else 0.0)
        return outcome


def repeats_needed(failed: int, runs: int, confidence: float) -> int:
    """How many passes in a row show, with this confidence, that the failure is gone.

    `failed` of `runs` runs of the baseline failed. If all did, one pass is enough. The failure rate is
    estimated low, so that a failure is not dismissed too early.
    """
    if not 0 < failed <= runs:
        raise ValueError(f"{failed} failures in {runs} runs: at least one run has to fail")
    if failed == runs:
        return 1
    rate = failed / (runs + 1)
    return min(MOST, math.ceil(math.log(1 - confidence) / math.log(1 - rate)))


def confidence_of(passes: int, failed: int, runs: int) -> float:
    """The confidence that the failure is gone, after so many passes in a row."""
    if failed == runs:
        return 1.0
    return 1 - (1 - failed / (runs + 1)) ** passes
