"""Steps recorded in one recording, where hashes are planned, and each in its own, where they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernelscope
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun


def values(calls: list[KernelCall]) -> list[Any]:
    return [(c.kernel_name, c.pre_hashes, c.post_hashes, c.uninitialised, c.phase) for c in calls]


def planned(run: Run) -> int:
    if isinstance(run, StoredRun):
        return int(run.rows("SELECT count(layout) FROM calls")[0][0])
    return sum(isinstance(entry, bytes) for entry in run.entries)


def in_one_recording(steps: list[Callable[[], Any]], path: Path | None = None) -> tuple[int, list[Any]]:
    """How many calls were planned, and the values of all calls."""
    with kernelscope.record(values="hash", path=path) as run:
        for step in steps:
            step()
        count = planned(run)
    assert not run.findings
    if path is not None:
        run = kernelscope.load(path)
        assert count == planned(run)
        [[stored]] = run.query("SELECT count(*) FROM hash")[1]
        assert stored == sum(len(c.pre_hashes.keys() | c.post_hashes.keys()) for c in run.calls)
    return count, values(run.calls)


def each_in_its_own(steps: list[Callable[[], Any]]) -> list[Any]:
    """The same with every execution looked at."""
    seen = []
    for step in steps:
        with kernelscope.record(values="hash") as run:
            step()
            assert not planned(run)
        seen += values(run.calls)
    return seen
