"""`kernelscope report`: a run, or two and their diff, as one file that needs nothing else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from ..run import StoredRun
from ..run.errors import RunError
from .comparison import Comparison
from .document import RunDocument
from .page_text import page

MOST_CALLS = 20_000
MOST_PICTURES = 2_000


def report(run: StoredRun, other: StoredRun | None = None, *, first: int = 0, limit: int = MOST_CALLS) -> str:
    """The page's text. At most `limit` calls from call `first` on, and the page says so."""
    name = RunDocument(run).about()["facts"]["name"]
    return page(f"{name} · kernelscope", data(run, other, first=first, limit=limit))


def data(run: StoredRun, other: StoredRun | None, *, first: int, limit: int) -> dict[str, Any]:
    runs = {"a": RunDocument(run).whole(first, limit, MOST_PICTURES)}
    diff = None
    if other is not None:
        runs["b"] = RunDocument(other).whole(first, limit, MOST_PICTURES)
        comparison = Comparison(run, other)
        diff = comparison.about()
        diff["rows"] = comparison.rows(0, 2 * limit if limit else diff["total"])
        diff["left_out"] = diff["total"] - len(diff["rows"]["a"])
        diff["total"] -= diff["left_out"]
    return {"served": False, "runs": runs, "diff": diff}


def write(text: str, path: Path) -> int:
    """Whole or not at all: beside it first, then in its place. Tells the number of bytes."""
    try:
        content = text.encode()
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}", delete=False) as file:
            file.write(content)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
        return len(content)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None
