"""`kernelscope diff --save`: both commands again, to save the tensors of the call that differs."""

from __future__ import annotations

import glob
import shlex
from dataclasses import replace
from pathlib import Path

from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.analysis.diff.saved_errors import saved_errors
from kernelscope.config import compiler_variables
from kernelscope.errors import RunError
from kernelscope.startup.recorded_child import watch
from kernelscope.store import folder
from kernelscope.store.safety.origin import refuse_untrusted
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.text.secrets import SECRET
from kernelscope.text.visible import one_line


def with_numbers(
    found: Divergence, a: tuple[Path, StoredRun], b: tuple[Path, StoredRun], *, trust: bool = False
) -> Divergence:
    """The divergence with the errors from a new run of each command; `trust` also of others' runs."""
    if found.index_a is None or found.index_b is None:
        raise RunError(f"--save: only one of the runs has this call ({found.verdict})")
    saved = []
    for path, run in (a, b):
        if not trust:
            _refuse_untrusted(path, run)
    for (path, run), index in ((a, found.index_a), (b, found.index_b)):
        saved.append(_again(path, run, index))
    errors = tuple(saved_errors(found.differences, *saved))
    where = " and ".join(str(run.path) for run, _ in saved)
    note = f"errors measured in new runs of both commands, saved in {where}"
    if not errors:
        note += "; in these the argument did not differ, or could not be read"
    return replace(found, errors=errors).with_notes(note)


def _refuse_untrusted(path: Path, run: StoredRun) -> None:
    invocation = _invocation(path)
    variables = [f"{name}={shlex.quote(str(value))}" for name, value in _recorded_variables(run).items()]
    words = " ".join([*variables, *map(shlex.quote, invocation.command)])
    command = f"  cd {one_line(shlex.quote(invocation.cwd))}\n  {one_line(words)}"
    why = run.why_not_made_here()
    if not why and not folder.is_own_invocation(invocation):
        why = f"{folder.command_file(path).name} is not signed by you"
    refuse_untrusted(path, why, command)


def _invocation(path: Path) -> folder.Invocation:
    invocation = folder.read_invocation(path)
    if invocation is None or not invocation.command:
        raise RunError(
            f"--save: {path} was not recorded by `kernelscope run`, so its command is unknown; "
            "record the program with values='save'"
        )
    if invocation.secrets:
        raise RunError(
            f"--save: the command of {path} had secrets, which were not recorded; run it yourself, with "
            f"--values save: {shlex.join(invocation.command)}"
        )
    return invocation


def _again(path: Path, run: StoredRun, index: int) -> tuple[StoredRun, int]:
    """A new run with the tensors of one call, and that call's index there."""
    invocation = _invocation(path)
    [call] = run.select(first=index, limit=1)
    name = glob.escape(call.kernel_name)
    earlier = run.select(kernel=name)
    number = sum(c.index < index for c in earlier)  # in the new run only this kernel is recorded
    options = ["--values=save", f"--kernel={name}", f"--save-call={number}", f"--stop-at={number}"]
    if run.info.settings.get("ops") == "all":
        options.append("--ops=all")
    target = folder.create_next(Path(folder.HOME), f"{path.name.removesuffix(folder.SUFFIX)}-saved")
    environ = _environment(run)
    watch(
        list(invocation.command), target, shlex.join(options), cwd=invocation.cwd, aside=True, environ=environ
    )
    again = load(target)
    if len(again) <= number:
        raise RunError(
            f"--save: the re-run made only {len(again)} calls of {call.kernel_name}; "
            f"call {number + 1} was needed"
        )
    return again, number


def _environment(run: StoredRun) -> dict[str, str | None]:
    """The recorded variables of torch and its compiler: they may be why the runs differ."""
    here = compiler_variables()
    recorded = _recorded_variables(run)
    found: dict[str, str | None] = {name: None for name in here if name not in recorded}
    return found | {name: here.get(name) if value == SECRET else value for name, value in recorded.items()}


def _recorded_variables(run: StoredRun) -> dict[str, str]:
    """None but torch's and its compiler's: a run cannot set LD_PRELOAD or PATH."""
    found = {str(name): str(value) for name, value in run.compiler_settings.get("environment", {}).items()}
    return compiler_variables(found)
