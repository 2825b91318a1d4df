"""Opens run.db for reading; after a crash, with the calls that only the flight recorder holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.events import Site
from kernelscope.store import folder
from kernelscope.store.run_db import codec
from kernelscope.store.run_db.row_reader import DatabaseReader

from .reader import Cell, FlightLog, is_recording, read_flight


def open_run(path: Path) -> DatabaseReader:
    """The database of this folder. Unwritten calls of a process that is gone are among its calls."""
    database = DatabaseReader(path / folder.DATABASE)
    with database.understood():
        log = _left_behind(path, dict(database.table("info")))
        if log is not None:
            _add(database, log)
    return database


def _left_behind(path: Path, info: dict[str, str]) -> FlightLog | None:
    """The flight recorder of a process that ended without closing its recording."""
    if "ended_ns" in info or is_recording(path / folder.FLIGHT) is not False:
        return None
    try:
        log = read_flight(path / folder.FLIGHT)
    except RunError:  # whoever asks for the crash is told why
        return None
    dropped_before = int(codec.from_json(info.get("dropped_before", "0")))
    log.cells[:] = [cell for cell in log.cells if cell.index >= dropped_before]
    return log if log.cells and not log.stopped and not log.is_closed else None


def _add(database: DatabaseReader, log: FlightLog) -> None:
    oldest = log.cells[0].index
    written = {id for (id,) in database.rows("SELECT id FROM calls WHERE id >= ?", (oldest,))}
    known = {id for (id,) in database.rows("SELECT id FROM sites")}
    described = known | set(log.sites)
    cells = [cell for cell in log.cells if cell.index not in written and cell.site in described]
    graph_calls = {id for (id,) in database.rows("SELECT id FROM graph_calls")}
    known_steps = "SELECT max(step) AS step FROM graph_calls UNION ALL SELECT max(step) FROM calls"
    [(step,)] = database.rows(f"SELECT max(step) FROM ({known_steps})")
    sites = {cell.site: log.sites[cell.site] for cell in cells if cell.site not in known}
    calls = [_row(cell, None if cell.graph_call in graph_calls else step) for cell in cells]
    database.add_unwritten(calls, _kernel_rows(database, sites.values()), list(sites.values()))


def _row(cell: Cell, step: int | None) -> codec.Row:
    """`step`: the last that is known, where the graph call is not."""
    took = cell.end_ns - cell.start_ns if cell.end_ns > cell.start_ns and not cell.is_executing else None
    return cell.index, cell.site, cell.graph_call, cell.start_ns, took, step, *[None] * 6


def _kernel_rows(database: DatabaseReader, sites: Iterable[Site]) -> list[codec.Row]:
    known = {id for (id,) in database.rows("SELECT id FROM kernels")}
    kernels = {site.kernel.id: site.kernel for site in sites}
    return [codec.row_of(kernel) for id, kernel in kernels.items() if id not in known]
