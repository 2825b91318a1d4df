"""What is the same at every call of a place: kernels, sites, graphs; and how often and how long each ran."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelscope.events import Arg, Frame, Graph, Kernel, Site
from kernelscope.store.columns import numbers_of
from kernelscope.store.run_db.codec import to_json
from kernelscope.store.stored_run import StoredRun

Form = dict[str, Any]
_MOST_LOOKED_UP = 500  # sites that no file leads to a graph
_LONGEST = 300  # letters of an argument's value


def sites(run: StoredRun) -> Form:
    """Kernels, graphs and sites by number. A kernel's source is asked for by itself."""
    graph_at = graphs_of_sites(run)
    moved: dict[int, int | None] = dict(run.numbers("SELECT id, bytes FROM sites"))
    kernels = {site.kernel.id: site.kernel for site, _ in run.sites.values()}
    at = places(run)
    return {
        "kernels": {id: kernel_form(kernel) for id, kernel in kernels.items()},
        "graphs": {graph.id: graph_form(graph) | {"compiled": at.get(graph.id)} for graph in run.graphs},
        "sites": {
            id: site_form(site, uninitialised) | {"graph": graph_at.get(id), "bytes": moved.get(id)}
            for id, (site, uninitialised) in run.sites.items()
        },
    }


def places(run: StoredRun) -> dict[int, int]:
    """By graph: where it stands among those that the pipeline shows, the staged ones first."""
    staged = {id(graph): place for place, graph in enumerate(run.stages)}
    found = {graph.id: run.stages_of(graph) for graph in run.graphs}
    others = iter(range(len(staged), len(staged) + len(found)))
    return {number: next(others) if of is None else staged[id(of)] for number, of in found.items()}


def graphs_of_sites(run: StoredRun) -> dict[int, int]:
    """The graph of each site that stands in one: by its wrapper's file, or else by its first call."""
    at = {graph.path: graph.id for graph in run.graphs if graph.path}
    found = {id: at[site.file] for id, (site, _) in run.sites.items() if site.file in at}
    others = [id for id, (site, _) in run.sites.items() if id not in found and site.kernel.kind != "op"]
    for id in others[:_MOST_LOOKED_UP] if run.graphs else ():
        rows = run.numbers("SELECT graph_call FROM calls WHERE site = ? LIMIT 1", (id,))
        graph = run.graph_of(rows[0][0]) if rows else None
        if graph is not None:
            found[id] = graph.id
    return found


def counts(run: StoredRun) -> Form:
    """By site: how many calls, nanoseconds of those that were measured, and the first call."""
    rows = run.numbers("SELECT site, count(*), sum(duration_ns), min(id) FROM calls GROUP BY site")
    return {site: [calls, total, first] for site, calls, total, first in rows}


def times(run: StoredRun) -> Form:
    """By kernel: the median, the maximum and the slowest call of those that were measured."""
    database = run.database
    with database.understood():
        ids, site, took = numbers_of(database, "calls", ("site", "ifnull(duration_ns, -1)"))
    if not run.sites or not len(ids):
        return {}
    known = np.array(sorted(run.sites))  # looked up, not indexed: a damaged run may have any number
    kernels = np.array([run.sites[int(id)][0].kernel.id for id in known])
    at = np.minimum(np.searchsorted(known, site), len(known) - 1)
    here = np.flatnonzero((took >= 0) & (known[at] == site))
    here = here[np.lexsort((took[here], kernels[at[here]]))]  # by kernel, the fastest first
    found: Form = {}
    for part in np.split(here, np.flatnonzero(np.diff(kernels[at[here]])) + 1) if len(here) else ():
        slowest = part[-1]
        found[str(kernels[at[slowest]])] = [
            float(np.median(took[part])), int(took[slowest]), int(ids[slowest])
        ]  # fmt: skip
    return found


def kernel_form(kernel: Kernel) -> Form:
    return {"name": kernel.name, "kind": kernel.kind, "producer": kernel.producer, "hash": kernel.source_hash}


def graph_form(graph: Graph) -> Form:
    return {"name": graph.name, "direction": graph.direction, "compile_id": graph.compile_id}


def site_form(site: Site, uninitialised: tuple[int, ...]) -> Form:
    return {
        "kernel": site.kernel.id,
        "wrapper": [site.file, site.line],
        "grid": None if site.grid is None else list(site.grid),
        "config": {str(k): _short(v) for k, v in site.config.items()},
        "device": site.device,
        "origin": [frame_form(frame) for frame in site.origin],
        "uninitialised": list(uninitialised),
        "args": [arg_form(arg) for arg in site.args],
    }


def frame_form(frame: Frame) -> list[Any]:
    return [frame.file, frame.line, frame.function]


def arg_form(arg: Arg) -> Form:
    form: Form = {"name": arg.name, "role": arg.role, "wrapper": arg.wrapper_name}
    if arg.tensor is None:
        return form | ({"varies": True} if arg.varies else {"value": _short(arg.value)})
    spec = arg.tensor
    return (
        form
        | {
            "dtype": spec.short_dtype,
            "shape": list(spec.shape),
            "stride": list(spec.stride),
            "device": spec.device,
            "unread": spec.unread,
        }
        | ({"returned": True} if arg.returned else {})
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
