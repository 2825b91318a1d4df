"""`reduce(fn, args)`: from a function to the smallest graph of it that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .candidates import Candidate, nothing
from .capture import Captured, capture
from .failures import Failure
from .journal import Journal
from .reducer import NothingToReduce, Reduction, reduce_from
from .trials import Check, Trials, shadow_check


def reduce(
    program: Callable[[], Any] | Candidate,
    *,
    check: Callable[[Candidate], Any] | None = None,
    journal: Path | None = None,
    resume: bool = False,
    repeats: int = 1,
    tell: Callable[[str], None] = lambda line: None,
) -> Reduction:
    """The smallest part of what `program` compiles that still fails as it does.

    The program is run once, with every kernel judged; it ends at the first that is wrong. Then parts of its
    graph are tried: a part fails in the same way if the same kernel is wrong in the same way, or the same
    exception is raised. A `check` of your own gets a candidate (`.module`, `.inputs`): does it fail?

        found = kernelscope.reduce(lambda: compiled(x).sum().backward())
        print(found)
    """
    judge = shadow_check if check is None else _as_check(check)
    trials = Trials(judge, Journal(journal, resume=resume), repeats, tell)
    if isinstance(program, Candidate):
        if check is not None:
            _confirm_dependence(judge)
        return reduce_from([program], None, trials, program.size, guess=check is None)
    captured = capture(program, trials.journal)
    if check is None:
        return reduce_captured(captured, trials)
    captured.close()
    _confirm_dependence(judge)
    return reduce_from(captured.starts, None, trials, captured.nodes)


def reduce_captured(captured: Captured, trials: Trials) -> Reduction:
    try:
        if captured.failure is None:
            raise NothingToReduce(captured.nothing)
        return reduce_from(
            captured.starts, captured.failure, trials, captured.nodes, guess=True, singles=captured.singles
        )
    finally:
        captured.close()


def _confirm_dependence(judge: Check) -> None:
    if judge(nothing()) is not None:
        raise NothingToReduce(
            "the check fails for a graph that computes nothing, too: it does not depend on the graph"
        )


def _as_check(check: Callable[[Candidate], Any]) -> Check:
    """What says true of a candidate that fails; an exception is a failure of its own kind."""

    def judge(candidate: Candidate) -> Failure | None:
        found = check(candidate)
        if found is None or isinstance(found, Failure):
            return found
        return Failure("check", "the check fails") if found else None

    return judge
