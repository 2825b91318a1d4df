"""When a trial counts as failed; each condition runs the program and tells how it went."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kernelscope.errors import RunError
from kernelscope.processes.quick_start import flush_files
from kernelscope.shadowing.eager_launches import EagerSession

from .settings import FAILED, PASSED, Outcome

Program = Callable[[], Any]


class Condition(Protocol):
    judges: bool  # whether every kernel is compared with eager

    def check(self, program: Program, session: EagerSession | None) -> Outcome:
        """Run the program; an exception of its own passes through."""


class Shadow:
    """Some kernel computes something else than eager."""

    judges = True

    def check(self, program: Program, session: EagerSession | None) -> Outcome:
        program()
        assert session is not None
        result = session.result
        found = result.culprit
        if found is None:
            return Outcome(PASSED, details={"problem": result.problem})
        details = {"culprit": found.to_dict(), "text": str(result)}
        return Outcome(FAILED, f"{found.verdict}: {found.kernel_name} {found.argument}", details)


class Raises:
    """The program raises."""

    judges = False

    def check(self, program: Program, session: EagerSession | None) -> Outcome:
        program()
        return Outcome(PASSED)


class Check:
    """A command, run after the program, has an exit status other than 0."""

    judges = False

    def __init__(self, command: str) -> None:
        self._command = command

    def check(self, program: Program, session: EagerSession | None) -> Outcome:
        program()
        flush_files()  # the command is told that the program has ended
        done = subprocess.run(self._command, shell=True, check=False)
        if done.returncode in (126, 127):
            raise RunError(f"--check: {self._command!r} cannot be run (status {done.returncode})")
        return Outcome(FAILED, f"status {done.returncode}") if done.returncode else Outcome(PASSED)


class Predicate:
    """A function says so; it is given the script's names, or what a function returned."""

    judges = False

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def check(self, program: Program, session: EagerSession | None) -> Outcome:
        said = self._function(program())
        return Outcome(FAILED, "the predicate says so") if said else Outcome(PASSED)


class Nan:
    """Something makes a NaN out of numbers."""

    judges = False

    def check(self, program: Program, session: EagerSession | None) -> Outcome:
        from kernelscope.values.hits import WatchHit
        from kernelscope.values.session import watch

        try:
            with watch("nan", ops="all"):
                program()
        except WatchHit as stopped:
            return Outcome(FAILED, str(stopped.hit).partition("\n")[0])
        return Outcome(PASSED)


def condition_of(told: Mapping[str, Any]) -> Condition:
    """From the words that a child is given."""
    kind, what = told["kind"], told.get("what", "")
    if kind == "check":
        return Check(what)
    if kind == "predicate":
        return Predicate(load_function(what))
    plain: dict[str, Callable[[], Condition]] = {"shadow": Shadow, "exception": Raises, "nan": Nan}
    return plain[kind]()


def load_function(where: str) -> Callable[[Any], Any]:
    """`file.py:function`."""
    file, _, name = where.rpartition(":")
    if not file or not Path(file).is_file():
        raise RunError(f"--predicate {where}: give file.py:function; there is no file {file or where}")
    spec = importlib.util.spec_from_file_location("kernelscope_predicate", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise RunError(f"--predicate {where}: {file} has no function {name}")
    function: Callable[[Any], Any] = found
    return function
