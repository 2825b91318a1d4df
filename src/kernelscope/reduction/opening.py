"""`reduce(fn, args)`: from a function to the smallest graph of it that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .candidates import Candidate
from .capture import Captured, capture
from .journal import Journal
from .reducer import NothingToReduce, Reduction, reduce_from
from .trials import Check, Trials, shadow_check


def reduce(
    program: Callable[[], Any] | Candidate,
    *,
    check: Check | None = None,
    journal: Path | None = None,
    resume: bool = False,
    repeats: int = 1,
    tell: Callable[[str], None] = lambda line: None,
) -> Reduction:
    """The smallest part of what `program` compiles that still fails as it does.

    The program is run once, with every kernel judged; it ends at the first that is wrong. `check` is what
    judges a candidate after that: by default, that the same kernel is wrong in the same way, or that the
    same exception is raised.

        found = kernelscope.reduce(lambda: compiled(x).sum().backward())
        print(found)
    """
    trials = Trials(check or shadow_check, Journal(journal, resume=resume), repeats, tell)
    if isinstance(program, Candidate):
        return reduce_from([program], None, trials)
    captured = capture(program)
    return reduce_captured(captured, trials, own_check=check is not None)


def reduce_captured(captured: Captured, trials: Trials, *, own_check: bool = False) -> Reduction:
    if captured.failure is None and not own_check:
        raise NothingToReduce(captured.nothing)
    failure = None if own_check else captured.failure
    return reduce_from(captured.starts, failure, trials, captured.nodes)


__all__: Sequence[str] = ["reduce"]
