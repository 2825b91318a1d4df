"""`kernelscope.bisect(fn, x, y)`: the trials run in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernelscope.determinism.call_forms import arguments_of
from kernelscope.errors import RunError
from kernelscope.trials.checks import NAMED_CHECKS, PredicateCheck, check_named
from kernelscope.trials.gpu_faults import gpu_is_lost
from kernelscope.trials.in_process import InProcessTrials
from kernelscope.trials.journal import Journal
from kernelscope.trials.outcome import Outcome
from kernelscope.trials.programs import Function
from kernelscope.trials.runner import SoughtFailure, TrialRunner
from kernelscope.trials.settings import Settings, Switch

from .axis_order import Descent
from .result import BisectResult


class _Here:
    """Runs trials in this process, and keeps the switches that they meet."""

    def __init__(self, trials: InProcessTrials) -> None:
        self._trials = trials
        self._found: dict[tuple[str, str], Switch] = {}

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome:
        outcome = self._trials.run(settings, self._meet if discover else None)
        if gpu_is_lost():
            raise RunError(
                f"a GPU fault made the device unusable in this process ({outcome.first_line}); "
                "put the program into a script, and run `kernelscope bisect --fails-on exception script.py`, "
                "which continues in a new process"
            )
        return outcome

    def found(self) -> list[Switch]:
        return list(self._found.values())

    def _meet(self, switch: Switch) -> None:
        self._found.setdefault((switch.axis, switch.name), switch)


def bisect(
    fn: Callable[..., Any],
    *given: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    fails: str | Callable[[Any], Any] = "shadow",
    compile: bool = True,
    axes: Sequence[str] = (),
    runs: int = 3,
    confidence: float = 0.99,
    workaround: bool = True,
    **named: Any,
) -> BisectResult:
    """Find the part of the compiler that makes a function fail: a config, a pass, a fusion, a kernel, …

    The arguments of `fn` are given one by one, as in a call of it, or as a tuple and a dictionary; `kwargs`
    takes those that have the name of an option of bisect.

    fails       "shadow": some kernel's result differs from eager; "exception": it raises the same exception
                each time; "nan": something makes a NaN; or a function that is true of a wrong result
    compile     False if `fn` calls torch.compile itself; it has to do so in each call
    axes        which to search: backend, config, pass, decomposition, lowering, fusion, autotune, kernel,
                execution; by default the search stops at the finest one that explains the failure
    runs        number of baseline runs, which show whether it fails each time
    confidence  that a trial did not pass by chance, if the failure is flaky
    workaround  False stops when the cause is known, and does not search for a workaround

    A function that crashes or hangs takes this process with it: use the command `kernelscope bisect`, which
    runs each trial in another process.

    Example:
        result = kernelscope.bisect(model, x)
        print(result, result.workaround)
    """
    if not callable(fn):
        raise TypeError(f"bisect(fn, …): fn must be callable, not {fn!r:.60}")
    if isinstance(fails, str) and fails not in NAMED_CHECKS:
        raise ValueError(f"bisect(fails={fails!r}): use a function or one of {', '.join(NAMED_CHECKS)}")
    if not 0 < confidence < 1:
        raise ValueError(f"bisect(confidence={confidence}): must be between 0 and 1")
    check = check_named(fails) if isinstance(fails, str) else PredicateCheck(fails)
    name = fails if isinstance(fails, str) else "predicate"
    words, options = arguments_of(fn, given, args, kwargs, named)
    program = Function(fn, words, options, compile=compile)
    with TemporaryDirectory(prefix="kernelscope-bisect-") as folder:
        trials = InProcessTrials(program, check, Path(folder))
        runner = TrialRunner(_Here(trials), Journal(), SoughtFailure(name), confidence=confidence)
        try:
            return Descent(runner, name, axes, workaround=workaround).run(runs)
        finally:
            # Nothing can be restored on a GPU that is lost.
            lost = (RuntimeError,) if gpu_is_lost() else ()
            with suppress(*lost):
                trials.close()
            with suppress(*lost):
                program.put_back()
