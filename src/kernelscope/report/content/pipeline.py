"""What became of each line: the stages of a graph as panes, each line with the atoms that it stands for.

An atom is one node in one launch. Two lines of any panes belong together when they share one, so that
pointing at a line, a node or a kernel finds its counterparts everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kernelscope.events import Graph
from kernelscope.generated_code.launch_comments import launches_in
from kernelscope.generated_code.line_comments import named_line
from kernelscope.stages import StagedGraph, user_lines
from kernelscope.stages.records import Incident, Provenance
from kernelscope.store.stored_run import StoredRun

from .fusion import fusion
from .sites import graphs_of_sites
from .sources import Line, Sources

Form = dict[str, Any]
Atoms = dict[Any, set[int]]  # by the name of a node, by a line, by a launch, …

_ASSIGNED = re.compile(r"^[-+ ]?\s*(\w+)(?:\s*:\s*\"[^\"]*\")?\s*=[^=]")
_SCHEDULED = re.compile(r"^((?:op\d+_?)+)[.:]")
_BEFORE_AUTOGRAD = ("dynamo", "pre_grad", "pre_grad_input", "pass pre_grad_passes")
_NOT_SHOWN = ("fx", "dag", "times")


def graphs(run: StoredRun) -> list[Form]:
    """Every graph that was compiled or that ran, without its texts."""
    found = [
        {
            "name": graph.name, "made": graph.made, "direction": graph.direction, "staged": True,
            "function": [str(f) for f in graph.frame.origin[:1]] if graph.frame else [],
            "kernels": len({p.kernel for p in graph.provenance}),
            "start": graph.compilation.start_ns, "time": max(graph.compilation.duration_ns, 0) or None,
        }
        for graph in run.stages
    ]  # fmt: skip
    return found + [
        {
            "name": f"{graph.name or graph.id} {graph.direction}", "made": "", "direction": graph.direction,
            "staged": False, "function": [], "kernels": 0, "start": None, "time": None,
        }
        for graph in _unstaged(run)
    ]  # fmt: skip


def graph(run: StoredRun, position: int, sources: Sources) -> Form:
    staged = list(run.stages)
    if position < len(staged):
        return _staged(run, staged[position], sources)
    return _by_lines(run, _unstaged(run)[position - len(staged)], sources)


def _unstaged(run: StoredRun) -> list[Graph]:
    return [graph for graph in run.graphs if run.stages_of(graph) is None]


def incident_form(incident: Incident) -> Form:
    return {
        "kind": incident.kind, "reason": incident.reason, "stage": incident.stage, "detail": incident.detail,
        "origin": [[f.file, f.line, f.function] for f in incident.origin], "source": incident.source,
        "compile_id": incident.compile_id,
    }  # fmt: skip


# -- a graph with stages -----------------------------------------------------------------------------------


def _staged(run: StoredRun, graph: StagedGraph, sources: Sources) -> Form:
    atoms = _Atoms(graph.provenance)
    ran = {g.id for g in run.graphs if run.stages_of(g) is graph}
    mine = [id for id, at in graphs_of_sites(run).items() if at in ran]
    launches = [
        {
            "kernel": p.kernel, "buffers": list(p.buffers), "atoms": sorted(atoms.of_launch[n]),
            "nodes": [{"name": o.name, "target": o.target, "pre_grad": list(o.pre_grad)} for o in p.nodes],
            "lines": [[f.file, f.line] for f in user_lines(p)],
            "sites": [id for id in mine if _provenance(run, graph, id) is p],
        }
        for n, p in enumerate(graph.provenance)
    ]  # fmt: skip
    operations = _operations(graph, atoms)
    panes = [
        {"name": name, "language": stage.language, "text": stage.text, "lines": marked}
        for name, stage in graph.stages.items()
        if name not in _NOT_SHOWN
        for marked in [_marks(_lines_of(graph, name, stage.text, atoms, operations))]
    ]
    kernels = [
        {"name": k.name, "language": k.language, "text": k.source, "atoms": sorted(atoms.of_kernel(k.name))}
        for k in graph.kernels
    ]
    return {
        "name": graph.name, "made": graph.made, "staged": True, "launches": launches, "panes": panes,
        "kernels": kernels, "sources": sources.panes(atoms.by_line),
        "fusion": fusion(graph, operations, atoms.of_launch),
        "incidents": [incident_form(incident) for incident in graph.incidents],
        "phases": graph.phases,
    }  # fmt: skip


class _Atoms:
    """The atoms of a graph, found by whatever a line may name."""

    def __init__(self, provenance: list[Provenance]) -> None:
        self.provenance = provenance
        self.of_launch: list[set[int]] = []
        self.by_node: Atoms = {}
        self.by_pre_grad: Atoms = {}
        self.by_line: dict[Line, set[int]] = {}
        self.by_buffer: Atoms = {}
        self.named: list[tuple[int, str]] = []  # of each atom: its launch and its node
        for launch, p in enumerate(provenance):
            mine = set()
            for node in p.nodes:
                atom = self._new(launch, node.name)
                mine.add(atom)
                self.by_node.setdefault(node.name, set()).add(atom)
                for name in node.pre_grad:
                    self.by_pre_grad.setdefault(name, set()).add(atom)
                for frame in node.frames[:1]:
                    self.by_line.setdefault((frame.file, frame.line), set()).add(atom)
            if not p.nodes:
                mine.add(self._new(launch, ""))
            self.of_launch.append(mine)
            for buffer in p.buffers:
                self.by_buffer.setdefault(buffer, set()).update(mine)

    def _new(self, launch: int, node: str) -> int:
        self.named.append((launch, node))
        return len(self.named) - 1

    def of_kernel(self, kernel: str) -> set[int]:
        return {a for n, p in enumerate(self.provenance) if p.kernel == kernel for a in self.of_launch[n]}


def _provenance(run: StoredRun, graph: StagedGraph, id: int) -> Provenance | None:
    site, _ = run.sites[id]
    return graph.provenance_at(site.line, site.kernel.name)


def _lines_of(
    graph: StagedGraph, name: str, text: str, atoms: _Atoms, operations: Atoms
) -> Iterator[tuple[int, set[int]]]:
    """Line numbers from 1, with their atoms."""
    if name == "output_code":
        yield from _wrapper_lines(graph, text, atoms)
        return
    names = atoms.by_pre_grad if name.partition("/")[0] in _BEFORE_AUTOGRAD else atoms.by_node
    current: set[int] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if name.startswith("schedule"):
            found = _SCHEDULED.match(line)
            if found is not None:
                parts = [part for part in found[1].split("_") if part]
                current = {a for part in parts for a in operations.get(part, ())}
            elif not line.strip():
                current = set()
            yield number, current
        elif named := named_line(line):
            yield number, atoms.by_line.get((named.file, named.line), set())
        elif assigned := _ASSIGNED.match(line):
            yield number, names.get(assigned[1], set())


def _wrapper_lines(graph: StagedGraph, text: str, atoms: _Atoms) -> Iterator[tuple[int, set[int]]]:
    by_handle = {(p.kernel, p.handle): n for n, p in enumerate(graph.provenance)}
    lines = text.splitlines()
    for launch in launches_in(text):
        place = by_handle.get((launch.kernel, launch.handle))
        if place is None:
            continue
        first = launch.line
        while first > 1 and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        for number in range(first, launch.line + 1):
            yield number, atoms.of_launch[place]
    for kernel in graph.kernels:
        for number in range(kernel.line, kernel.line + kernel.source.count("\n") + 1):
            yield number, atoms.of_kernel(kernel.name)


def _operations(graph: StagedGraph, atoms: _Atoms) -> Atoms:
    """By the name of a scheduler node: those of its launch that it computes."""
    found: Atoms = {}
    for node in (graph.part("dag") or {"nodes": []})["nodes"]:
        mine = {a for buffer in node["outputs"] for a in atoms.by_buffer.get(buffer, ())}
        named = {a for a in mine if atoms.named[a][1] in node["metadata"].get("fx", ())}
        found[node["name"]] = named or mine
    return found


def _marks(lines: Iterable[tuple[int, set[int]]]) -> list[list[Any]]:
    """First line, last line, atoms: of lines that follow one another with the same ones."""
    found: dict[int, set[int]] = {}
    for number, atoms in lines:
        if atoms:
            found.setdefault(number, set()).update(atoms)
    ranges: list[list[Any]] = []
    for number, atoms in sorted(found.items()):
        listed = sorted(atoms)
        if ranges and ranges[-1][1] == number - 1 and ranges[-1][2] == listed:
            ranges[-1][1] = number
        else:
            ranges.append([number, number, listed])
    return ranges


# -- a graph without them ----------------------------------------------------------------------------------


def _by_lines(run: StoredRun, graph: Graph, sources: Sources) -> Form:
    """The wrapper and the kernels, which are in every run; each site is an atom."""
    graph_at = graphs_of_sites(run)
    mine = [(id, site) for id, (site, _) in run.sites.items() if graph_at.get(id) == graph.id]
    by_line: dict[Line, set[int]] = {}
    marked: dict[int, set[int]] = {}
    by_kernel: dict[int, set[int]] = {}
    for atom, (_, site) in enumerate(mine):
        marked.setdefault(site.line, set()).add(atom)
        by_kernel.setdefault(site.kernel.id, set()).add(atom)
        for frame in site.origin[:1]:
            by_line.setdefault((frame.file, frame.line), set()).add(atom)
    kernels = {site.kernel.id: site.kernel for _, site in mine}
    wrapper = {"name": "output_code", "language": "python", "text": graph.source,
               "lines": _marks(marked.items())}  # fmt: skip
    return {
        "name": f"{graph.name or graph.id} {graph.direction}", "made": "", "staged": False,
        "launches": [
            {"kernel": site.kernel.name, "buffers": [], "atoms": [atom], "nodes": [], "sites": [id],
             "lines": [[f.file, f.line] for f in site.origin[:1]]}
            for atom, (id, site) in enumerate(mine)
        ],
        "panes": [*_frame_panes(run, graph, by_line), *([wrapper] if graph.source else [])],
        "kernels": [
            {"name": k.name, "language": k.kind, "text": k.source, "atoms": sorted(by_kernel[k.id])}
            for k in kernels.values() if k.source
        ],
        "sources": sources.panes(by_line), "fusion": None, "incidents": [], "phases": {},
    }  # fmt: skip


def _frame_panes(run: StoredRun, graph: Graph, by_line: dict[Line, set[int]]) -> list[Form]:
    """What Dynamo made of the frame, where another backend than Inductor compiled it."""
    frames = [f for f in run.stages.frames if f.compile_id and f.compile_id == graph.compile_id]
    return [
        {
            "name": stage.name, "language": stage.language, "text": stage.text,
            "lines": _marks(
                (number, by_line.get((named.file, named.line), set()))
                for number, line in enumerate(stage.text.splitlines(), start=1)
                if (named := named_line(line))
            ),
        }
        for stage in (run.stages.stages_of_frame(frames[-1]) if frames else ())
        if stage.name not in _NOT_SHOWN
    ]  # fmt: skip
