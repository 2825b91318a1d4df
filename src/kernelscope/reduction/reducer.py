"""The search: nodes first, then inputs, always with the same failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelscope.errors import RunError

from .candidates import Candidate, comparable, part_of, removable, values_of
from .ddmin import ddmin
from .failures import Failure
from .shrinking import shrink, smallest
from .single_node_search import Singles, singles_of
from .trials import Trials


@dataclass(slots=True)
class Reduction:
    """What is left."""

    candidate: Candidate
    failure: Failure
    nodes_before: int
    trials: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        return self.candidate.size

    def __str__(self) -> str:
        head = f"{self.nodes_before} nodes → {self.nodes}, {self.trials} trials, {self.seconds:.1f} s"
        return f"{head}\n  {self.failure}\n{self.candidate.code}"


class NothingToReduce(RunError):
    """It does not fail, or does not fail reliably, or always does."""


def reduce_from(
    starts: Sequence[Candidate],
    failure: Failure | None,
    trials: Trials,
    nodes_before: int = 0,
    *,
    guess: bool = False,
    singles: Singles | None = None,
) -> Reduction:
    """Begin with the first of `starts` that fails as the program did; without it, that fails at all.

    guess    look first for a node that is wrong by itself: values have to tell
    singles  of these nodes, and maybe more, that are compiled already
    """
    if not starts:
        raise NothingToReduce("there is no compiled graph to reduce")
    if guess and failure is not None and failure.kind == "kernel" and trials.repeats == 1:
        single = _guessed(starts[0], failure, trials, singles)
        if single is not None:
            nodes = max(nodes_before, *(c.size for c in starts))
            return _reduction(single, trials, nodes)
    start, wanted = _beginning(starts, failure, trials)
    _confirm(start, wanted, trials)
    nodes_before = max(nodes_before, *(c.size for c in starts))
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


def _reduction(candidate: Candidate, trials: Trials, nodes_before: int) -> Reduction:
    failure = trials.outcome(candidate)
    assert isinstance(failure, Failure)
    return Reduction(candidate, failure, nodes_before, trials.journal.trials, trials.seconds)


def _guessed(start: Candidate, wanted: Failure, trials: Trials, ready: Singles | None) -> Candidate | None:
    """One node that fails alone as the program did, and does so twice."""
    if len(comparable(start)) < 2:
        return None
    values = values_of(start)
    nodes = singles_of(start, values)
    if not nodes:
        return None
    is_ready = ready is not None and not start.dynamic and ready.has(nodes)
    singles = ready if ready is not None and is_ready else Singles(nodes, dynamic=start.dynamic)
    try:
        wrong = trials.look(singles.key, len(nodes), lambda: singles.wrong(nodes, values))
    finally:
        singles.close()
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
    starts: Sequence[Candidate], failure: Failure | None, trials: Trials
) -> tuple[Candidate, Failure]:
    seen: list[str] = []
    for start in starts:
        found = trials.outcome(start)
        if isinstance(found, Failure) and (failure is None or failure.is_same(found)):
            trials.tell(f"trial {trials.journal.trials}: {start.size} nodes: {found}")
            return start, found
        seen.append("passed" if found is None else str(found))
    if failure is None:
        raise NothingToReduce("nothing to reduce: the check passes for the whole graph; it has to fail")
    raise NothingToReduce(
        f"the failure of the program, {failure}, does not come back when its graph runs alone "
        f"({'; '.join(seen)}); "
        "does it depend on what ran before, or on chance? --repeats 5 tries each graph up to five times"
    )


def _confirm(start: Candidate, wanted: Failure, trials: Trials) -> None:
    """Once more: a failure that comes and goes would be lost on the way."""
    again = trials.check(start)
    trials.count += 1
    if trials.repeats > 1 or (again is not None and wanted.is_same(again)):
        return
    then = "then passed" if again is None else f"then in another way ({again})"
    raise NothingToReduce(
        f"it is not deterministic: {wanted}\n"
        f"failed once and {then}; --repeats 5 tries each graph up to five times"
    )
