"""For Weights & Biases: a run with its page and findings as an artifact, and statistics by step.

Example:
    from kernelscope.integrations.wandb import log_run

    log_run("train-1", mode="offline")
"""

from __future__ import annotations

import os
from typing import Any

from kernelscope.store.stored_run import StoredRun

from .packages import needed
from .tracked_run import files_of, name_of, numbers_of, opened, points_of, settings_of

_FOLDER = "kernelscope"


def log_run(
    run: StoredRun | str | os.PathLike[str],
    *,
    mode: str = "offline",
    directory: str | os.PathLike[str] | None = None,
    project: str = "kernelscope",
) -> str:
    """Log to the active run of wandb, or to a new one, which is offline unless `mode` says otherwise.

    Returns the folder of the run of wandb; `wandb sync FOLDER` uploads an offline one.
    """
    wandb = needed("wandb", "wandb", "kernelscope.integrations.wandb")
    run = opened(run)
    active = wandb.run
    given = {"project": project, "name": name_of(run), "config": settings_of(run), "mode": mode}
    current = active or wandb.init(**given, dir=None if directory is None else str(directory))
    folder = str(current.dir).removesuffix("files").rstrip(os.sep)
    try:
        current.summary.update({f"{_FOLDER}/{name}": value for name, value in numbers_of(run).items()})
        _log_statistics(current, run)
        with files_of(run) as files:
            artifact = wandb.Artifact(_artifact_name(name_of(run)), type="kernelscope-run")
            for file in files:
                artifact.add_file(str(file), name=file.name)  # which copies it
            current.log_artifact(artifact)
            page = next(file for file in files if file.name == "report.html")
            current.log({f"{_FOLDER}/report": wandb.Html(page.read_text(encoding="utf-8"), inject=False)})
    finally:
        if active is None:
            current.finish()
    return folder


def _log_statistics(current: Any, run: StoredRun) -> None:
    """All of one step together, with an axis of their own: wandb's own steps only grow."""
    axis = f"{_FOLDER}/step"
    current.define_metric(axis)
    current.define_metric(f"{_FOLDER}/*", step_metric=axis)
    step = -1
    held: dict[str, float] = {}
    for point in points_of(run):
        if point.step != step and held:
            current.log(held | {axis: step})
            held = {}
        step = point.step
        held |= {f"{_FOLDER}/{point.tag}/{name}": value for name, value in point.statistics.items()}
    if held:
        current.log(held | {axis: step})


def _artifact_name(text: str) -> str:
    return "".join(each if each.isalnum() or each in "._-" else "-" for each in text)[:120]
