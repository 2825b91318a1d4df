"""What decides whether a trial failed: each check runs the program and returns the outcome."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable
from typing import Any, Protocol

from kernelscope.errors import RunError
from kernelscope.processes.program_words import predicate_words
from kernelscope.processes.quick_start import flush_files
from kernelscope.shadowing.eager_launches import EagerSession

from .outcome import FAILED, PASSED, Outcome

Program = Callable[[], Any]


class Check(Protocol):
    judges: bool  # whether every kernel is compared with eager

    def run(self, program: Program, session: EagerSession | None) -> Outcome:
        """Run the program; its own exceptions pass through."""


class ShadowCheck:
    """Some kernel's result differs from eager."""

    judges = True

    def run(self, program: Program, session: EagerSession | None) -> Outcome:
        raised: Exception | None = None
        try:
            program()
        except RunError:
            raise
        except Exception as error:  # as a bug report does that ends with an assertion: what ran was compared
            raised = error
        assert session is not None
        result = session.result
        found = result.culprit
        if found is None and raised is not None:
            raise raised
        if found is None:
            return Outcome(PASSED, details={"problem": result.problem})
        details = {"culprit": found.to_dict(), "text": str(result)}
        return Outcome(FAILED, f"{found.verdict}: {found.kernel_name} {found.argument}", details)


class ExceptionCheck:
    """The program raises."""

    judges = False

    def run(self, program: Program, session: EagerSession | None) -> Outcome:
        program()
        return Outcome(PASSED)


class CommandCheck:
    """A command that runs after the program has a non-zero exit status."""

    judges = False

    def __init__(self, command: str) -> None:
        self._command = command

    def run(self, program: Program, session: EagerSession | None) -> Outcome:
        program()
        flush_files()  # the command reads what the program has written
        done = subprocess.run(self._command, shell=True, check=False)
        if done.returncode in (126, 127):
            raise RunError(f"--check: {self._command!r} cannot be run (exit status {done.returncode})")
        return Outcome(FAILED, f"exit status {done.returncode}") if done.returncode else Outcome(PASSED)


class PredicateCheck:
    """A function of the script's global names, or of what a function returned, is true."""

    judges = False

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def run(self, program: Program, session: EagerSession | None) -> Outcome:
        is_wrong = self._function(program())
        return Outcome(FAILED, "the predicate is true") if is_wrong else Outcome(PASSED)


class NanCheck:
    """Something makes a NaN out of numbers."""

    judges = False

    def run(self, program: Program, session: EagerSession | None) -> Outcome:
        from kernelscope.values.hits import WatchHit
        from kernelscope.values.session import watch

        try:
            with watch("nan", ops="all"):
                program()
        except WatchHit as stopped:
            return Outcome(FAILED, str(stopped.hit).partition("\n")[0])
        return Outcome(PASSED)


NAMED_CHECKS: dict[str, Callable[[], Check]] = {
    "shadow": ShadowCheck, "exception": ExceptionCheck, "nan": NanCheck,
}  # fmt: skip


def check_named(kind: str, what: str = "") -> Check:
    """The check that the command line names; `what` is the command, or the predicate's file and function."""
    if kind == "check":
        return CommandCheck(what)
    return PredicateCheck(load_function(what)) if kind == "predicate" else NAMED_CHECKS[kind]()


def load_function(where: str) -> Callable[[Any], Any]:
    """`file.py:function`."""
    file, name = predicate_words(where)
    function = runpy.run_path(file, run_name="kernelscope_predicate").get(name)
    if not callable(function):
        raise RunError(f"--predicate {where}: {file} has no function {name}")
    found: Callable[[Any], Any] = function
    return found
