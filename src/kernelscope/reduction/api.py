"""`kernelscope.reduce(program)` or `reduce(fn, x, y)`: from a program to its smallest graph that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelscope.determinism.call_forms import arguments_of
from kernelscope.errors import RunError
from kernelscope.shadowing.run_once import try_once
from kernelscope.trials.failure_signature import FailureSignature
from kernelscope.trials.journal import REDUCE, Journal

from .candidate_trials import CandidateCheck, CandidateTrials, shadow_check
from .candidates import Candidate, nothing
from .capture import Captured, capture
from .reducer import NothingToReduce, Reduction, reduce_from


def reduce(
    program: Callable[..., Any] | Candidate,
    *given: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    check: Callable[[Candidate], Any] | None = None,
    journal: Path | None = None,
    resume: bool = False,
    repeats: int = 1,
    tell: Callable[[str], None] = lambda line: None,
    **named: Any,
) -> Reduction:
    """Find the smallest part of a program's graph that has the same failure.

    With arguments, the first one is a function that is compiled and called with them, as by
    `check_correctness`; without, it is a program that calls compiled code itself. It runs once, up to the
    first kernel whose result differs from eager. Then parts of its graph are tried: a failure is the same if
    the same kernel is wrong in the same way, or the same exception is raised. Your own `check` gets a
    candidate (`.module`, `.inputs`), and is true if that fails.

        found = kernelscope.reduce(lambda: compiled(x).sum().backward())
        print(found)

        found = kernelscope.reduce(model, x)
    """
    judge = shadow_check if check is None else _as_check(check)
    if journal is not None and journal.exists() and not resume:
        raise RunError(f"{journal} already exists: use resume=True to continue, or choose another file")
    trials = CandidateTrials(judge, Journal(journal, REDUCE), repeats, tell)
    if isinstance(program, Candidate):
        if check is not None:
            _confirm_dependence(judge)
        return reduce_from([program], None, trials, program.size, guess=check is None)
    captured = capture(_run_of(program, given, args, kwargs, named))
    if check is None:
        return reduce_captured(captured, trials)
    _confirm_dependence(judge)
    return reduce_from(captured.starts, None, trials, captured.nodes)


def _run_of(
    fn: Callable[..., Any],
    given: Sequence[Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    named: dict[str, Any],
) -> Callable[[], Any]:
    """The program that is reduced."""
    words, options = arguments_of(fn, given, args, kwargs, named)
    return lambda: try_once(fn, words, options) if words or options else fn()


def reduce_captured(captured: Captured, trials: CandidateTrials) -> Reduction:
    if captured.failure is None:
        raise NothingToReduce(captured.nothing)
    return reduce_from(captured.starts, captured.failure, trials, captured.nodes, guess=True)


def _confirm_dependence(judge: CandidateCheck) -> None:
    if judge(nothing()) is not None:
        raise NothingToReduce(
            "the check fails for a graph that computes nothing, too: it does not depend on the graph"
        )


def _as_check(check: Callable[[Candidate], Any]) -> CandidateCheck:
    """From a function that is true of a candidate that fails."""

    def judge(candidate: Candidate) -> FailureSignature | None:
        found = check(candidate)
        if found is None or isinstance(found, FailureSignature):
            return found
        return FailureSignature("check", "the check fails") if found else None

    return judge
