"""Pictures of the tensors that calls of a run saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernelscope.errors import RunError
from kernelscope.store.folder import TENSORS
from kernelscope.store.stored_run import StoredRun
from kernelscope.store.tensors import read_tensor

from .pictures import picture

Form = dict[str, Any]


def saved(run: StoredRun, indices: Iterable[int]) -> dict[int, dict[str, str]]:
    """By call and "argument moment": the file of a saved tensor."""
    wanted = list(indices)
    if not wanted:
        return {}
    with run.database.understood():
        rows = run.database.rows(
            "SELECT call, position, moment, file FROM tensors WHERE call BETWEEN ? AND ?",
            (min(wanted), max(wanted)),
        )
    among = set(wanted)
    found: dict[int, dict[str, str]] = {}
    for call, position, moment, file in rows:
        if call in among:
            found.setdefault(int(call), {})[f"{int(position)} {moment}"] = str(file)
    return found


def pictures(run: StoredRun, files: Iterable[str]) -> Form:
    """By file; one that cannot be read says why."""
    return {file: picture_of(run, file) for file in dict.fromkeys(files)}


def picture_of(run: StoredRun, file: str) -> Form:
    if not is_inside(run, file):
        return {"error": f"{file} is not a saved tensor of this run"}
    try:
        tensor = read_tensor(run.path / TENSORS / file)
        return picture(tensor) or {"error": f"tensors of dtype {tensor.dtype} cannot be drawn"}
    except (RunError, ValueError) as error:
        return {"error": str(error)}


def is_inside(run: StoredRun, file: str) -> bool:
    """A run made by another user must not name files outside of it."""
    return "/" not in file and not file.startswith(".") and not (run.path / TENSORS / file).is_symlink()
