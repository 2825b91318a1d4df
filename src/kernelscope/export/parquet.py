"""A run as Parquet tables in a new folder: calls, their arguments, kernels, graphs, findings.

Calls are read and written some thousands at a time.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.model.run import Run
from kernelscope.views.call_filter import CallFilter

from .output import STANDARD_OUTPUT, new_folder
from .parquet_tables import (
    ARGUMENTS,
    CALLS,
    FINDINGS,
    GRAPHS,
    KERNELS,
    Tables,
    argument_rows,
    call_row,
)  # fmt: skip

_ROWS = 5000  # calls in one group of rows


def write(run: Run, path: Path, wanted: CallFilter) -> int:
    if path == STANDARD_OUTPUT:
        raise RunError("Parquet tables need a folder: give it a name with -o FOLDER")
    tables = Tables()
    with new_folder(path) as folder:
        count = _write_calls(tables, run, folder, wanted)
        noted = run.noted_findings()
        tables.write(folder / "kernels.parquet", KERNELS, map(asdict, run.kernels))
        tables.write(folder / "graphs.parquet", GRAPHS, map(asdict, run.graphs))
        tables.write(folder / "findings.parquet", FINDINGS, map(asdict, noted))
    return count


def _write_calls(tables: Tables, run: Run, folder: Path, wanted: CallFilter) -> int:
    count = 0
    with (
        tables.open(folder / "calls.parquet", CALLS) as put_calls,
        tables.open(folder / "arguments.parquet", ARGUMENTS) as put_arguments,
    ):
        calls = wanted.calls(run)
        while page := list(islice(calls, _ROWS)):
            put_calls([call_row(call) for call in page])
            put_arguments([row for call in page for row in argument_rows(call)])
            count += len(page)
    return count
