"""What experiment trackers get of a run: numbers, statistics step by step, and files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kernelscope.model.call import KernelCall
from kernelscope.report.file import report, write
from kernelscope.store import folder
from kernelscope.store.packing import pack
from kernelscope.store.stored_run import StoredRun, load

_STATISTICS = ("min", "max", "mean", "std", "nan", "pos_inf", "neg_inf", "zeros")
_MOST_SHOWN = 20_000  # calls in the page
_AT_ONCE = 1000  # calls that are read at once


class Point(NamedTuple):
    """One tensor that a kernel wrote, in one step."""

    tag: str  # KERNEL/ARGUMENT, and the number of the call among those of the kernel in this step
    step: int
    call: KernelCall
    argument: int
    statistics: dict[str, float]


def opened(run: StoredRun | str | os.PathLike[str]) -> StoredRun:
    """A run on disk, or its name."""
    return run if isinstance(run, StoredRun) else load(folder.resolve(Path(run)))


def name_of(run: StoredRun) -> str:
    """Of a part of a run, such as that of a rank: the name of the run and of the part."""
    name, whole = run.path.name.removesuffix(folder.SUFFIX), run.path.absolute().parent.name
    return f"{whole.removesuffix(folder.SUFFIX)}-{name}" if whole.endswith(folder.SUFFIX) else name


def settings_of(run: StoredRun) -> dict[str, str]:
    """Versions and options, as text."""
    info = run.info
    found = {f"version.{name}": str(version) for name, version in info.versions.items()}
    return found | {f"record.{name}": str(value) for name, value in info.settings.items()}


def numbers_of(run: StoredRun) -> dict[str, float]:
    """How much was recorded, and how many findings of each kind there are."""
    counts = Counter(finding.kind for finding in run.findings)
    found: dict[str, float] = {"calls": len(run), "kernels": len(run.kernels), "graphs": len(run.graphs)}
    found |= {"findings": sum(counts.values())} | {f"findings.{kind}": n for kind, n in counts.items()}
    total = sum(nanoseconds or 0 for _, _, nanoseconds, _ in run.times())
    return found | ({"seconds": total / 1e9} if total else {})


def points_of(run: StoredRun) -> Iterator[Point]:
    """Each tensor that was written, with its statistics where the run has some."""
    seen: Counter[tuple[int, str]] = Counter()
    for first in range(0, len(run), _AT_ONCE):
        for call in run.select(first=first, limit=_AT_ONCE):
            number = seen[call.step, call.kernel_name]
            seen[call.step, call.kernel_name] += 1
            which = f"{call.kernel_name}.{number}" if number else call.kernel_name
            statistics, roles = call.post_stats, call.roles
            for i, argument in enumerate(call.arguments):
                if argument.tensor is not None and roles[i] in ("out", "inout"):
                    told = asdict(statistics[i]) if i in statistics else {}
                    kept = {name: told[name] for name in _STATISTICS if told.get(name) is not None}
                    yield Point(f"{which}/{argument.name}", call.step, call, i, kept)


def has_statistics(run: StoredRun) -> bool:
    """Whether there is a curve to draw: a number for a tensor of some step."""
    return any(point.statistics for point in points_of(run))


@contextmanager
def files_of(run: StoredRun) -> Iterator[list[Path]]:
    """The packed run, its page and its findings, in a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="kernelscope-") as made:
        home = Path(made)
        packed = pack(run.path, home / f"{name_of(run)}{folder.SUFFIX}.zip")
        write(report(run, limit=_MOST_SHOWN), home / "report.html")
        found: list[dict[str, Any]] = [asdict(finding) for finding in run.findings]
        (home / "findings.json").write_text(json.dumps({"findings": found}, indent=1), encoding="utf-8")
        yield [packed, home / "report.html", home / "findings.json"]
