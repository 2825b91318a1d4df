"""`kernelscope report`: a run, or two and their diff, as one file that needs nothing else."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.private_files import open_private
from kernelscope.report.content.comparison import Comparison
from kernelscope.report.content.ranks import RanksOfRun
from kernelscope.store.stored_run import StoredRun

from .document import RunDocument
from .page_text import page

MOST_CALLS = 20_000
MOST_PICTURES = 2_000


def report(
    run: StoredRun,
    other: StoredRun | None = None,
    *,
    first: int | None = None,
    limit: int = MOST_CALLS,
    ranks: RanksOfRun | None = None,
    precision: dict[str, Any] | None = None,
) -> str:
    """The page's text. At most `limit` calls from call `first` on, and the page says so."""
    return page_of(data(run, other, first=first, limit=limit, ranks=ranks, precision=precision))


def page_of(held: dict[str, Any]) -> str:
    return page(f"{held['runs']['a']['facts']['name']} · kernelscope", held)


def data(
    run: StoredRun,
    other: StoredRun | None,
    *,
    first: int | None,
    limit: int,
    ranks: RanksOfRun | None = None,
    precision: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What the page shows; without `first`, the part of two runs that has their divergence."""
    told = {"ranks": None if ranks is None else ranks.in_a_file(), "precision": precision}
    if other is None:
        whole = RunDocument(run).whole(first or 0, limit, MOST_PICTURES)
        return {"served": False, "runs": {"a": whole}, "diff": None} | told
    comparison = Comparison(run, other)
    begin = comparison.first_calls(limit) if first is None else (first, first)
    runs = {
        key: RunDocument(each).whole(at, limit, MOST_PICTURES)
        for key, each, at in zip("ab", (run, other), begin, strict=True)
    }
    return {"served": False, "runs": runs, "diff": comparison.whole(begin, limit)} | told


def write(text: str, path: Path) -> int:
    """Write a file atomically, and return its size."""
    content = text.encode()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open_private(unfinished, "xb") as file:
            file.write(content)
        unfinished.replace(path)
        return len(content)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error.strerror}") from None
