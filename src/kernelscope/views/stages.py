"""Stages in a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelscope.events import Frame, Graph
from kernelscope.stages import StagedGraph, Stages, user_lines
from kernelscope.stages.export import provenance_form
from kernelscope.stages.graphs import GCU
from kernelscope.stages.records import Compilation, Incident, Provenance, Stage
from kernelscope.text.amounts import counted, duration
from kernelscope.text.frames import frame_form, source_line

from .terminal import node_rows, room, table

# Which of torch's phases a stage is the result of.
_PHASES = {
    "dynamo": "bytecode_tracing",
    "guards": "build_guards",
    "pre_grad": "_recursive_pre_grad_passes",
    "joint": "aot_trace_joint_graph",
    "joint_optimized": "_recursive_joint_graph_passes",
    "aot": "min_cut_rematerialization_partition",
    "post_grad": "_recursive_post_grad_passes",
    "schedule": "Scheduler.__init__",
    "output_code": "GraphLowering.codegen",
    "fused": "dag",
    "choreo": "dsl",
    "host_wrapper": "build",
}
_MOST_LINES = 2  # of the user's program beside a kernel, on a terminal
_HOW = {
    "compiled": "compiled",
    "cached": "from the cache, with all stages",
    "cached-in-part": "from the cache, which has only these stages; --fresh compiles again",
    "failed": "FAILED",
    "": "not finished",
}


def tree(found: Stages, graphs: list[StagedGraph], path: Path, ran: Sequence[Graph] = ()) -> Iterator[str]:
    """Every graph with its stages and kernels, then what went wrong; `ran` are those that were executed."""
    failed = f", {len(found.failures)} failed" if found.failures else ""
    breaks, again = len(found.graph_breaks), len(found.recompiles)
    yield (
        f"{path}: {counted(len(found.graphs), 'graph')}{failed}, {counted(breaks, 'graph break')}, "
        f"{counted(again, 'recompilation')}"
    )
    for graph in graphs:
        yield ""
        yield from _graph(graph)
    if len(graphs) == len(found.graphs):
        for frame in found.frame_only():
            yield ""
            yield f"frame {frame.compile_id}  {_function(frame)}: no graph was compiled"
            yield from table([], [(f"  {s.name}", _size(s)) for s in found.stages_of_frame(frame)])
        unknown = [g for g in ran if found.of(g) is None]
        if unknown:
            yield ""
            yield "without stages (compiled before the recording began):"
            yield from (f"  {g.name or g.cache_key or '?'} ({g.direction})" for g in unknown)
    for title, incidents in (
        ("graph breaks", found.graph_breaks),
        ("recompilations", found.recompiles),
        ("failed compilations", found.failures),
    ):
        if incidents:
            yield ""
            yield title
            for incident in incidents:
                yield from incident_lines(incident)


def _graph(graph: StagedGraph) -> Iterator[str]:
    took = graph.compilation.duration_ns
    time = f" in {duration(took / 1e9)}" if took >= 0 and graph.made == "compiled" else ""
    yield f"graph {graph.name}  {_function(graph.frame)}  {_HOW.get(graph.made, graph.made)}{time}"
    phases = graph.phases
    rows = []
    for name, stage in graph.stages.items():
        if name in ("fx", "dag", "times", GCU):
            continue
        taken = stage.duration_ns / 1e9 if stage.duration_ns >= 0 else phases.get(_PHASES.get(name, ""), -1.0)
        rows.append((f"  {name}", _size(stage), duration(taken) if taken >= 0 else ""))
    yield from table([], rows, right=(1, 2))
    names = kernel_names(graph)
    if names:
        yield "  kernels"
        yield from table([], [_kernel_row(graph, name) for name in names])


def _kernel_row(graph: StagedGraph, name: str) -> tuple[str, ...]:
    launches = graph.provenance_of(name)
    nodes = dict.fromkeys(n.name for p in launches for n in p.nodes)
    lines = dict.fromkeys(_short(line) for p in launches for line in user_lines(p))
    return f"    {name}", counted(len(nodes), "node"), _some(list(lines))


def _some(lines: list[str]) -> str:
    """All of them, or on a terminal as many as one can take in."""
    if not room() or len(lines) <= _MOST_LINES:
        return ", ".join(lines)
    return f"{', '.join(lines[:_MOST_LINES])} and {len(lines) - _MOST_LINES} more"


def kernel_names(graph: StagedGraph) -> list[str]:
    return list(dict.fromkeys([p.kernel for p in graph.provenance] + [k.name for k in graph.kernels]))


def kernel_block(graph: StagedGraph, name: str) -> Iterator[str]:
    """Source, nodes and the user's lines of one kernel."""
    yield f"kernel {name}, graph {graph.name}"
    for launch in graph.provenance_of(name):
        yield f"  launch {launch.handle}" + (f" makes {', '.join(launch.buffers)}" if launch.buffers else "")
        yield from (f"    {line}" for line in table([], node_rows(launch.nodes), indent=4))
        yield from _user_lines(launch)
    for candidate in (c for c in graph.candidates if c.kernel == name):
        mark = "chosen" if candidate.chosen else ""
        yield f"  tried {candidate.config}: {duration(candidate.nanoseconds / 1e9)} {mark}".rstrip()
    source = next((k.source for k in graph.kernels if k.name == name), "")
    yield "  source" if source else "  no source: this kernel is not generated code"
    yield from (f"    {line}" for line in source.splitlines())


def _user_lines(launch: Provenance) -> Iterator[str]:
    lines = user_lines(launch)
    if lines:
        yield "    your lines"
        rows = [(f"      {_short(f)}", source_line(f)) for f in lines]
        yield from table([], rows)


def incident_lines(incident: Incident) -> Iterator[str]:
    where = incident.origin[0] if incident.origin else "?"
    stage = f" at stage {incident.stage}" if incident.stage else ""
    yield f"  {incident.compile_id}  {where}{stage}: {incident.reason}"
    callers = incident.origin[1:3] if incident.kind == "recompile" else ()
    yield from (f"      called from {frame}" for frame in callers)
    yield from (f"      {line}" for line in incident.source.splitlines())


def _function(frame: Compilation | None) -> str:
    if frame is None or not frame.origin:
        return ""
    return _short(frame.origin[0]) if room() else str(frame.origin[0])


def _size(stage: Stage) -> str:
    count = stage.text.count("\n") + 1
    return counted(count, "line")


def _short(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


# -- JSON ----------------------------------------------------------------------------------------------


def graph_form(graph: StagedGraph) -> dict[str, Any]:
    compilation = graph.compilation
    return {
        "name": graph.name,
        "compile_id": compilation.compile_id,
        "direction": graph.direction,
        "aot_id": compilation.name,
        "cache_key": compilation.cache_key,
        "made": graph.made,
        "seconds": compilation.duration_ns / 1e9 if compilation.duration_ns >= 0 else None,
        "function": frame_form(graph.frame.origin[0] if graph.frame and graph.frame.origin else None),
        "stages": [
            {"name": name, "language": s.language, "lines": s.text.count("\n") + 1}
            for name, s in graph.stages.items()
        ],
        "kernels": [kernel_form(graph, name, source=False) for name in kernel_names(graph)],
        "refusals": len(graph.refusals),
        "times": graph.phases,
    }


def kernel_form(graph: StagedGraph, name: str, *, source: bool = True) -> dict[str, Any]:
    launches = graph.provenance_of(name)
    form: dict[str, Any] = {
        "name": name,
        "graph": graph.name,
        "launches": [provenance_form(p) for p in launches],
        "lines": [frame_form(f) for f in dict.fromkeys(f for p in launches for f in user_lines(p))],
        "candidates": [
            {"config": c.config, "nanoseconds": c.nanoseconds, "chosen": c.chosen}
            for c in graph.candidates
            if c.kernel == name
        ],
    }
    if source:
        form["source"] = next((k.source for k in graph.kernels if k.name == name), None)
    return form


def incident_form(incident: Incident) -> dict[str, Any]:
    return {
        "kind": incident.kind,
        "compile_id": incident.compile_id,
        "reason": incident.reason,
        "stage": incident.stage or None,
        "origin": [frame_form(f) for f in incident.origin],
        "detail": incident.detail,
        "source": incident.source or None,
    }
