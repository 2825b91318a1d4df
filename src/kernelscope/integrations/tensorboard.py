"""For TensorBoard: statistics and histograms of what each kernel writes, step by step.

Example:
    from kernelscope.integrations.tensorboard import log_run

    log_run("train-1", "tensorboard")
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope.errors import RunError
from kernelscope.private_files import FILE, make_folder
from kernelscope.store.stored_run import StoredRun

from .packages import needed
from .tracked_run import name_of, numbers_of, opened, points_of, settings_of

_MOST_ELEMENTS = 1_000_000  # of one histogram


class Logged(NamedTuple):
    """What was written, and where."""

    values: int  # and histograms
    folder: Path


def log_run(run: StoredRun | str | os.PathLike[str], directory: str | os.PathLike[str]) -> Logged:
    """Write event files to DIRECTORY/NAME, after the name of the run; to NAME-2 and so on where that exists.

    TensorBoard joins all files of a folder to one curve, so each export has a folder of its own.
    Scalars KERNEL/ARGUMENT/max and so on come from `values="stats"`, histograms of values from
    `values="save"`, and histograms of seconds from `time=True`. Findings are texts.
    """
    needed("tensorboard", "tensorboard", "kernelscope.integrations.tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    run = opened(run)
    folder = _new_folder(Path(directory), name_of(run))
    try:
        return Logged(_write(SummaryWriter(str(folder)), run), folder)
    finally:
        for file in folder.iterdir():
            file.chmod(FILE)


def _new_folder(home: Path, name: str) -> Path:
    make_folder(home, exist_ok=True)
    for number in count(1):
        try:
            return make_folder(home / (name if number == 1 else f"{name}-{number}"))
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")


def _write(writer: Any, run: StoredRun) -> int:
    with writer:
        count = _write_points(writer, run) + _write_times(writer, run)
        facts = settings_of(run) | {name: str(value) for name, value in numbers_of(run).items()}
        writer.add_text("kernelscope", "\n".join(f"    {name} = {value}" for name, value in facts.items()))
        for number, finding in enumerate(run.findings):
            writer.add_text("kernelscope/findings", f"    {finding}", number)
    return count


def _write_points(writer: Any, run: StoredRun) -> int:
    count = 0
    for point in points_of(run):
        for name, value in point.statistics.items():
            writer.add_scalar(f"{point.tag}/{name}", value, point.step)
        count += len(point.statistics) + _write_histogram(writer, run, point)
    return count


def _write_histogram(writer: Any, run: StoredRun, point: Any) -> int:
    """Of a tensor that was saved: its finite elements, as histograms have no bin for others."""
    import numpy

    if (point.argument, "after") not in run.saved_tensors(point.call.index):
        return 0
    try:
        values = run.saved_value(point.call, point.call.arguments[point.argument].name, "after").numpy()
    except RunError:  # larger than what was kept
        return 0
    values = numpy.abs(values) if numpy.iscomplexobj(values) else values
    flat = numpy.asarray(values, dtype="float64").ravel()[:_MOST_ELEMENTS]
    flat = flat[numpy.isfinite(flat)]
    if not len(flat):
        return 0
    writer.add_histogram(point.tag, flat, point.step)
    return 1


def _write_times(writer: Any, run: StoredRun) -> int:
    """How long the calls of each kernel took, in each step."""
    import numpy

    if not run.times():
        return 0
    held: dict[tuple[str, int], list[float]] = {}
    for call in run.calls:
        if call.time is not None:
            held.setdefault((call.kernel_name, call.step), []).append(call.time)
    for (name, step), seconds in held.items():
        writer.add_histogram(f"{name}/seconds", numpy.array(seconds), step)
    return len(held)
