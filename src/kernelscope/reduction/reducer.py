"""The search: smaller graphs first, then smaller inputs, as long as the failure is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelscope.errors import RunError
from kernelscope.text.amounts import counted
from kernelscope.trials.failure_signature import FailureSignature

from .candidate_trials import CandidateTrials
from .candidates import Candidate, comparable, part_of, removable, values_of
from .ddmin import ddmin
from .single_node_search import key_of, singles_of, wrong_nodes
from .smaller_inputs import shrink, smallest


@dataclass(slots=True)
class Reduction:
    """The smallest candidate that fails."""

    candidate: Candidate
    failure: FailureSignature
    nodes_before: int
    trials: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        return self.candidate.size

    def __str__(self) -> str:
        head = (
            f"{counted(self.nodes_before, 'node')} → {self.nodes}, {counted(self.trials, 'trial')}, "
            f"{self.seconds:.1f} s"
        )
        return f"{head}\n  {self.failure}\n{self.candidate.code}"


class NothingToReduce(RunError):
    """The program does not fail, or not reliably, or fails whatever the graph is."""


def reduce_from(
    starts: Sequence[Candidate],
    failure: FailureSignature | None,
    trials: CandidateTrials,
    nodes_before: int = 0,
    *,
    guess: bool = False,
) -> Reduction:
    """Start with the first of `starts` that has this failure, or any; `guess` tries each node alone first."""
    if not starts:
        raise NothingToReduce("nothing to reduce: the program compiled no graph")
    nodes_before = max(nodes_before, *(c.size for c in starts))
    if guess and failure is not None and failure.kind == "kernel" and trials.repeats == 1:
        single = _guessed(starts[0], failure, trials)
        if single is not None:
            return _reduction(single, trials, nodes_before)
    start, wanted = _beginning(starts, failure, trials)
    _confirm(start, wanted, trials)
    values = values_of(start)

    def part(names: list[str]) -> Candidate | None:
        return part_of(start, set(names), values)

    def fails(names: list[str]) -> bool:
        made = part(names)
        return made is not None and made.size > 0 and trials.fails_as(wanted, made)

    names = removable(start)
    kept = ddmin(names, fails) if len(names) > 1 else names
    smaller = part(kept) if len(kept) < len(names) else None
    found = shrink(smaller or start, lambda c: trials.fails_as(wanted, c))
    return _reduction(found, trials, nodes_before)


def _reduction(candidate: Candidate, trials: CandidateTrials, nodes_before: int) -> Reduction:
    failure = trials.outcome(candidate).failure
    assert failure is not None
    return Reduction(candidate, failure, nodes_before, trials.journal.count, trials.seconds)


def _guessed(start: Candidate, wanted: FailureSignature, trials: CandidateTrials) -> Candidate | None:
    """One node that fails alone as the program did, twice."""
    if len(comparable(start)) < 2:
        return None
    values = values_of(start)
    nodes = singles_of(start, values)
    if not nodes:
        return None
    wrong = trials.find_wrong_nodes(
        key_of(nodes), len(nodes), lambda: wrong_nodes(nodes, values, dynamic=start.dynamic)
    )
    for name in wrong[:2]:
        alone = part_of(start, {name}, values)
        least = smallest(alone) if alone is not None else None
        if alone is None:
            continue
        if least is not None and trials.fails_as(wanted, least):
            found = least
        elif trials.fails_as(wanted, alone):
            found = shrink(alone, lambda c: trials.fails_as(wanted, c))
        else:
            continue
        _confirm(found, wanted, trials)
        return found
    return None


def _beginning(
    starts: Sequence[Candidate], failure: FailureSignature | None, trials: CandidateTrials
) -> tuple[Candidate, FailureSignature]:
    seen: list[str] = []
    for start in starts:
        outcome = trials.outcome(start)
        if outcome.failure is not None and (failure is None or failure.is_same(outcome.failure)):
            trials.report(f"{counted(start.size, 'node')}: {outcome.failure}")
            return start, outcome.failure
        seen.append(outcome.what or outcome.kind)
    if failure is None:
        raise NothingToReduce("nothing to reduce: the check passes for the whole graph; it has to fail")
    raise NothingToReduce(
        f"the failure of the program, {failure}, did not reproduce when its graph ran alone "
        f"({'; '.join(seen)}); it may depend on what ran before, or be flaky: "
        "--repeats 5 tries each graph up to five times"
    )


def _confirm(start: Candidate, wanted: FailureSignature, trials: CandidateTrials) -> None:
    """Run it again: the search would lose a flaky failure."""
    again = trials.check(start)
    trials.count += 1
    if trials.repeats > 1 or (again is not None and wanted.is_same(again)):
        return
    then = "passed" if again is None else f"failed differently ({again})"
    raise NothingToReduce(
        f"the failure is not deterministic: {wanted}\n"
        f"failed once, then {then}; --repeats 5 tries each graph up to five times"
    )
