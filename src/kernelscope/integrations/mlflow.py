"""For MLflow: a run with its page and findings as artifacts, and its numbers as metrics.

Example:
    from kernelscope.integrations.mlflow import log_run

    with mlflow.start_run():
        log_run("train-1")
"""

from __future__ import annotations

import os
from itertools import islice
from typing import Any

from kernelscope.store.stored_run import StoredRun

from .packages import needed
from .tracked_run import files_of, name_of, numbers_of, opened, points_of, settings_of

_FOLDER = "kernelscope"
_MOST_POINTS = 20_000  # metrics of single tensors


def log_run(run: StoredRun | str | os.PathLike[str], *, tracking_uri: str | None = None) -> str:
    """Log to the active run of MLflow, or to a new one; returns its id.

    Statistics become metrics by step, `kernelscope/KERNEL/ARGUMENT/max` and so on: the first 20,000 values.
    """
    mlflow = needed("mlflow", "mlflow", "kernelscope.integrations.mlflow")
    run = opened(run)
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    active = mlflow.active_run()
    current = active or mlflow.start_run(run_name=name_of(run))
    identity = str(current.info.run_id)
    try:
        mlflow.set_tags({f"{_FOLDER}.{name}": value for name, value in settings_of(run).items()})
        mlflow.log_metrics({f"{_FOLDER}/{name}": value for name, value in numbers_of(run).items()})
        _log_statistics(mlflow, identity, run)
        with files_of(run) as files:
            for file in files:
                mlflow.log_artifact(str(file), _FOLDER)
    finally:
        if active is None:
            mlflow.end_run()
    return identity


def _log_statistics(mlflow: Any, identity: str, run: StoredRun) -> None:
    """In blocks of 1,000, which is the most that a request may have."""
    metric = needed("mlflow.entities", "mlflow", "kernelscope.integrations.mlflow").Metric
    now = int(run.info.realtime_ns / 1e6)
    values = (
        metric(_key(f"{_FOLDER}/{point.tag}/{name}"), float(value), now, point.step)
        for point in points_of(run)
        for name, value in point.statistics.items()
    )
    found = list(islice(values, _MOST_POINTS))
    for first in range(0, len(found), 1000):
        mlflow.MlflowClient().log_batch(identity, metrics=found[first : first + 1000])


def _key(text: str) -> str:
    """MLflow takes letters, digits and a few signs, and at most 250 of them."""
    return "".join(each if each.isalnum() or each in "/._- " else "_" for each in text)[:250]
