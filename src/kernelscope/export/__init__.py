"""A run in the form of another tool: a trace for Perfetto, Parquet tables, JSON, a graph for Graphviz.

Example:
    from kernelscope.export import export
    export(run, "perfetto", "trace.json")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.model.run import Run
from kernelscope.views.call_filter import CallFilter

# By name: the module that writes it, and how its files end.
FORMS = {
    "perfetto": (".perfetto", ".perfetto.json"),
    "parquet": (".parquet", ".parquet"),
    "json": (".document", ".json"),
    "dot": (".dot", ".dot"),
}


def export(
    run: Run, form: str, path: str | os.PathLike[str], *, wanted: CallFilter | None = None, flows: bool = True
) -> int:
    """Write a run, or some of its calls, to a new file (of Parquet: a new folder); how many calls it has.

    `flows` is about Perfetto: whether arrows lead from the call that wrote something to those that read it.
    """
    if form not in FORMS:
        raise RunError(f"cannot export to {form!r:.40}; use one of {', '.join(FORMS)}")
    write: Callable[..., int] = import_module(FORMS[form][0], __name__).write
    options: dict[str, Any] = {"flows": flows} if form == "perfetto" else {}
    return write(run, Path(path), wanted or CallFilter(), **options)
