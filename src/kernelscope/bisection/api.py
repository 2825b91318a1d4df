"""`kernelscope.bisect(fn, args)`: the trials run in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernelscope.errors import RunError
from kernelscope.trials.failure_conditions import Condition, Nan, Predicate, Raises, Shadow
from kernelscope.trials.failure_signature import Failure
from kernelscope.trials.gpu_faults import gpu_is_lost
from kernelscope.trials.in_process import Engine
from kernelscope.trials.journal import Journal
from kernelscope.trials.programs import Function
from kernelscope.trials.runner import Trials
from kernelscope.trials.settings import Outcome, Settings, Switch

from .descent import Descent
from .result import BisectResult

_CONDITIONS: dict[str, Callable[[], Condition]] = {"shadow": Shadow, "exception": Raises, "nan": Nan}


class _Here:
    """A runner in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: dict[tuple[str, str], Switch] = {}

    def run(self, settings: Settings, *, discover: bool = False) -> Outcome:
        outcome = self._engine.run(settings, self._meet if discover else None)
        if gpu_is_lost():
            raise RunError(
                f"the GPU cannot be used any more in this process ({outcome.what.partition(chr(10))[0]}); "
                "put the program into a script, and run `kernelscope bisect --fails-on exception script.py`: "
                "that starts another process then"
            )
        return outcome

    def found(self) -> list[Switch]:
        return list(self._found.values())

    def _meet(self, switch: Switch) -> None:
        self._found.setdefault((switch.axis, switch.name), switch)


def bisect(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    fails: str | Callable[[Any], Any] = "shadow",
    compile: bool = True,
    axes: Sequence[str] = (),
    runs: int = 3,
    confidence: float = 0.99,
    workaround: bool = True,
) -> BisectResult:
    """Find out what of the compiler makes a function fail: a config, a pass, a lowering, a fusion, a kernel.

    fails    "shadow": some kernel computes something else than eager; "exception": it raises, each time the
             same; "nan": something makes a NaN; or a function of the result that is true when that is wrong
    compile  False if `fn` calls torch.compile itself; it has to do so each time that it is called
    axes     what to look at, of backend, config, pass, decomposition, lowering, fusion, autotune, kernel,
             execution; left out, it stops at the finest one that explains the failure
    runs     of the unchanged function at most, to see whether it fails each time
    confidence  that a trial which passes did not pass by chance, if it does not fail each time
    workaround  False stops when the cause is known, and looks for no setting that helps

    A function that crashes or hangs takes this process with it: for such, use the command, which runs each
    trial in a process of its own.

    Example:
        result = kernelscope.bisect(model, (x,))
        print(result, result.workaround)
    """
    if not callable(fn):
        raise TypeError(f"bisect(fn, …) calls fn, and {fn!r:.60} cannot be called")
    if isinstance(fails, str) and fails not in _CONDITIONS:
        raise ValueError(f"bisect(fails={fails!r}): use a function or one of {', '.join(_CONDITIONS)}")
    if not 0 < confidence < 1:
        raise ValueError(f"bisect(confidence={confidence}): use a number between 0 and 1")
    condition = _CONDITIONS[fails]() if isinstance(fails, str) else Predicate(fails)
    name = fails if isinstance(fails, str) else "predicate"
    program = Function(fn, tuple(args), kwargs or {}, compile=compile)
    with TemporaryDirectory(prefix="kernelscope-bisect-") as folder:
        engine = Engine(program, condition, Path(folder))
        trials = Trials(
            _Here(engine), Journal(None, {}), Failure(name), confidence=confidence, progress=_quiet
        )
        try:
            return Descent(trials, name, axes, workaround=workaround).run(runs)
        finally:
            # Nothing can be put back on a GPU that is lost.
            lost = (RuntimeError,) if gpu_is_lost() else ()
            with suppress(*lost):
                engine.close()
            with suppress(*lost):
                program.put_back()


def _quiet(what: str, outcome: Outcome, seconds: float) -> None: ...
