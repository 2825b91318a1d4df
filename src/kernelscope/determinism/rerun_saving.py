"""`kernelscope diff --save`: the commands once more, keeping the tensors of the call that differs."""

from __future__ import annotations

import glob
import shlex
from dataclasses import replace
from pathlib import Path

from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.analysis.tensor_errors import Errors, errors_between
from kernelscope.config import compiler_variables
from kernelscope.errors import RunError
from kernelscope.startup.recorded_child import watch
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun, load
from kernelscope.store.tensors import read_tensor


def with_numbers(found: Divergence, a: tuple[Path, StoredRun], b: tuple[Path, StoredRun]) -> Divergence:
    """The divergence with the errors that one more run of each command showed."""
    if found.index_a is None or found.index_b is None:
        raise RunError(f"--save: {found.verdict}: only one of the runs has this call")
    saved = []
    for (path, run), index in ((a, found.index_a), (b, found.index_b)):
        saved.append(_again(path, run, index))
    errors = tuple(_errors(found, *saved))
    where = " and ".join(str(run.path) for run, _ in saved)
    note = f"numbers of one more run of each command, kept in {where}"
    if not errors:
        note += "; in these the argument did not differ, or could not be read"
    return replace(found, errors=errors).with_notes(note)


def _again(path: Path, run: StoredRun, index: int) -> tuple[StoredRun, int]:
    """A new run with the tensors of one call, and that call's index there."""
    story = folder.read_story(path)
    if story is None or not story.command:
        raise RunError(
            f"--save: {path} was not recorded by `kernelscope run`, so the command is not known; "
            "record the program with values='save'"
        )
    [call] = run.select(first=index, limit=1)
    name = glob.escape(call.kernel_name)
    earlier = run.select(kernel=name)
    number = sum(c.index < index for c in earlier)  # only this kernel is recorded: it is counted alone
    options = ["--values=save", f"--kernel={name}", f"--save-call={number}", f"--stop-at={number}"]
    if run.info.settings.get("ops") == "all":
        options.append("--ops=all")
    target = folder.create_next(Path(folder.HOME), f"{path.name.removesuffix(folder.SUFFIX)}-saved")
    environ = _environment(run)
    watch(list(story.command), target, shlex.join(options), cwd=story.cwd, aside=True, environ=environ)
    again = load(target)
    if len(again) <= number:
        raise RunError(f"--save: it came to {len(again)} calls of {call.kernel_name}, not to {number + 1}")
    return again, number


def _environment(run: StoredRun) -> dict[str, str | None]:
    """The variables of torch and its compiler as they were then: they may be why the runs differ."""
    found: dict[str, str | None] = dict.fromkeys(compiler_variables())
    return found | {name: str(value) for name, value in run.compiler_settings.get("environment", {}).items()}


def _errors(found: Divergence, a: tuple[StoredRun, int], b: tuple[StoredRun, int]) -> list[Errors]:
    saved_a, saved_b = a[0].saved_tensors(a[1]), b[0].saved_tensors(b[1])
    errors = []
    for d in found.differences:
        key, other = (d.position, d.moment), (d.position_b, d.moment)
        if d.what == "values" and key in saved_a and other in saved_b:
            held_a = read_tensor(a[0].path / folder.TENSORS / saved_a[key])
            held_b = read_tensor(b[0].path / folder.TENSORS / saved_b[other])
            if (one := errors_between(held_a, held_b, d.argument, d.moment)) is not None:
                errors.append(one)
    return errors
