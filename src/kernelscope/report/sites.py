"""What is the same at every call of a place: kernels, sites, graphs; and how often and how long each ran."""

from __future__ import annotations

from typing import Any

from ..events import Arg, Frame, Graph, Kernel, Site
from ..run import StoredRun
from ..run.codec import to_json

Form = dict[str, Any]
_LONGEST = 300  # letters of an argument's value


def sites(run: StoredRun) -> Form:
    """Kernels, graphs and sites by number. A kernel's source is asked for by itself."""
    with run._database.understood():
        counted = run._database.rows("SELECT site, count(*), sum(duration_ns), min(id) FROM calls GROUP BY site")
        moved = dict(run._database.rows("SELECT id, bytes FROM sites"))
        firsts = run.read_calls([first for _, _, _, first in counted])
    ran = {site: (calls, total, first) for site, calls, total, first in counted}
    graph_of = {call.site.id: run.graph_of(call.graph_call) for call in firsts}
    return {
        "kernels": {k.id: kernel_form(k) for k in {s.kernel.id: s.kernel for s, _ in run.sites.values()}.values()},
        "graphs": {g.id: graph_form(g) for g in run.graphs},
        "sites": {
            id: site_form(site, dead)
            | {
                "graph": None if graph_of.get(id) is None else graph_of[id].id,  # type: ignore[union-attr]
                "bytes": moved.get(id),
                "calls": ran.get(id, (0, None, None))[0],
                "time": ran.get(id, (0, None, None))[1],
                "first": ran.get(id, (0, None, None))[2],
            }
            for id, (site, dead) in run.sites.items()
        },
    }


def kernel_form(kernel: Kernel) -> Form:
    return {"name": kernel.name, "kind": kernel.kind, "producer": kernel.producer, "hash": kernel.source_hash}


def graph_form(graph: Graph) -> Form:
    return {"name": graph.name, "direction": graph.direction, "compile_id": graph.compile_id}


def site_form(site: Site, dead: tuple[int, ...]) -> Form:
    return {
        "kernel": site.kernel.id,
        "wrapper": [site.file, site.line],
        "grid": None if site.grid is None else list(site.grid),
        "config": {str(k): _short(v) for k, v in site.config.items()},
        "device": site.device,
        "origin": [frame_form(frame) for frame in site.origin],
        "dead": list(dead),
        "args": [arg_form(arg) for arg in site.args],
    }


def frame_form(frame: Frame) -> list[Any]:
    return [frame.file, frame.line, frame.function]


def arg_form(arg: Arg) -> Form:
    form: Form = {"name": arg.name, "role": arg.role, "wrapper": arg.wrapper_name}
    if arg.tensor is None:
        return form | ({"varies": True} if arg.varies else {"value": _short(arg.value)})
    spec = arg.tensor
    return form | {
        "dtype": spec.short_dtype,
        "shape": list(spec.shape),
        "stride": list(spec.stride),
        "device": spec.device,
        "unread": spec.unread,
    }


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
