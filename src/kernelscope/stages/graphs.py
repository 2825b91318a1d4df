"""What the compiler did, graph by graph: views on the records of a run."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from kernelscope.events import Frame, Graph
from kernelscope.generated_code.kernels import GeneratedKernel, kernels_in
from kernelscope.generated_code.launch_comments import launches_in

from .choreo_code import choreo_kernels_in
from .records import FRAME, Compilation, Incident, Provenance, Record, Refusal, Stage, TimedConfig

GCU = "gcu"  # the stage of a gcu graph with the rest of its document
_Kind = TypeVar("_Kind", TimedConfig, Compilation, Incident, Provenance, Refusal, Stage)


class NoSuchStage(LookupError):
    """The run does not have this graph or stage; the message lists those that it has."""


class StagedGraph:
    """One graph with its stages, those of the frame that it was made of first."""

    def __init__(
        self, compilation: Compilation, frame: Compilation | None, records: Sequence[Record]
    ) -> None:
        self.compilation = compilation
        self.frame = frame
        self._records = records

    def _of(self, kind: type[_Kind], compilation: Compilation | None) -> list[_Kind]:
        id = -2 if compilation is None else compilation.id
        return [r for r in self._records if isinstance(r, kind) and getattr(r, "compilation", -1) == id]

    @property
    def name(self) -> str:
        """As `kernelscope stages` calls it: "0/0 forward"."""
        return f"{self.compilation.compile_id or '?'} {self.compilation.direction}"

    @property
    def direction(self) -> str:
        return self.compilation.direction

    @property
    def producer(self) -> str:
        """Which backend made it: "inductor" or "gcu"."""
        return "gcu" if GCU in self.stages else "inductor"

    @property
    def made(self) -> str:
        return self.compilation.made

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """By name, in the compiler's order; of one name the last."""
        found: dict[str, Stage] = {}
        other = {f"aot_{d}" for d in ("forward", "backward", "inference")} - {f"aot_{self.direction}"}
        for owner in (self.frame, self.compilation):
            for stage in self._of(Stage, owner):
                if owner is self.frame and (stage.name in other or stage.name == "times"):
                    continue
                found[_free_name(stage, found)] = stage
        ordered = sorted(found, key=_rank)  # of one rank, as they came: passes one after the other
        return {_shown_name(name): found[name] for name in ordered}

    def stage(self, name: str) -> Stage:
        found = self.stages.get(name) or self.stages.get(f"pass {name}")
        if found is None:
            raise NoSuchStage(f"graph {self.name} has no stage {name!r}; it has {', '.join(self.stages)}")
        return found

    def diff(self, before: str, after: str) -> str:
        """A unified diff of two stages."""
        old, new = self.stage(before).text.splitlines(), self.stage(after).text.splitlines()
        return "\n".join(difflib.unified_diff(old, new, before, after, lineterm=""))

    # -- kernels ---------------------------------------------------------------------------------------

    @property
    def output_code(self) -> str:
        stage = self.stages.get("output_code")
        return "" if stage is None else stage.text

    @cached_property
    def kernels(self) -> list[GeneratedKernel]:
        if "choreo" in self.stages:
            return choreo_kernels_in(self.stages["choreo"].text)
        return [replace(k, source=k.source.strip("\n")) for k in kernels_in(self.output_code)]

    @cached_property
    def provenance(self) -> list[Provenance]:
        return self._of(Provenance, self.compilation)

    def provenance_of(self, kernel: str) -> list[Provenance]:
        return [p for p in self.provenance if p.kernel == kernel]

    @cached_property
    def _by_line(self) -> dict[int, Provenance]:
        by_handle = {(p.kernel, p.handle): p for p in self.provenance}
        launches = launches_in(self.output_code)
        known = [launch for launch in launches if (launch.kernel, launch.handle) in by_handle]
        return {launch.line: by_handle[launch.kernel, launch.handle] for launch in known}

    def provenance_at(self, line: int, kernel: str) -> Provenance | None:
        """Of the launch on this line of the wrapper."""
        found = self._by_line.get(line)
        if found is None:  # a launch of several lines: the nearest one above
            above = [(at, p) for at, p in self._by_line.items() if at <= line and p.kernel == kernel]
            found = max(above, key=lambda pair: pair[0])[1] if above else None
        return found

    @cached_property
    def held(self) -> dict[str, str]:
        """By buffer: the node of the post-grad graph whose value it holds at the end."""
        listed = (self.part("dag") or {}).get("buffers", ())
        return {each["name"]: each["node"] for each in listed if each.get("node") and not each.get("body")}

    @property
    def refusals(self) -> list[Refusal]:
        """Pairs that were considered for one kernel and refused, with the reason."""
        return self._of(Refusal, self.compilation)

    @property
    def candidates(self) -> list[TimedConfig]:
        return self._of(TimedConfig, self.compilation) + self._of(TimedConfig, self.frame)

    @property
    def incidents(self) -> list[Incident]:
        return self._of(Incident, self.frame) + self._of(Incident, self.compilation)

    def part(self, name: str) -> dict[str, Any] | None:
        """A stage that is kept as JSON: "fx" (Dynamo's graph), "dag" (the backend's own)."""
        stage = self.stages.get(name)
        return None if stage is None else dict(json.loads(stage.text))

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by torch's names of the compiler's phases."""
        found: dict[str, float] = {}
        for owner in (self.frame, self.compilation):
            for stage in self._of(Stage, owner):
                if stage.name == "times":
                    found |= json.loads(stage.text).get("phases", {})
        return found

    def __repr__(self) -> str:
        return f"<StagedGraph {self.name}: {len(self.stages)} stages, {len(self.kernels)} kernels>"


class Stages:
    """All graphs that were compiled, or came out of a cache, while a run was recorded."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        compilations = {r.id: r for r in records if isinstance(r, Compilation)}
        self.frames = [c for c in compilations.values() if c.direction == FRAME]
        self.graphs = [
            StagedGraph(c, compilations.get(c.frame), records)
            for c in compilations.values()
            if c.direction != FRAME
        ]

    def graph(self, which: str | int) -> StagedGraph:
        """By position, by compile id ("0/0"), or with its direction ("0/0 backward", "0_backward")."""
        found = [g for i, g in enumerate(self.graphs) if _is_named(g, i, which)]
        if not found:
            known = ", ".join(repr(g.name) for g in self.graphs) or "none: record with --stages"
            raise NoSuchStage(f"there is no graph {which!r}; there is {known}")
        return found[-1] if " " in str(which) or "_" in str(which) else found[0]

    def __getitem__(self, which: str | int) -> StagedGraph:
        return self.graph(which)

    def __iter__(self) -> Iterator[StagedGraph]:
        return iter(self.graphs)

    def __len__(self) -> int:
        return len(self.graphs)

    def of(self, graph: Graph | None) -> StagedGraph | None:
        """The stages of a graph that ran."""
        if graph is None:
            return None
        found = [
            g
            for g in self.graphs
            if (g.compilation.compile_id, g.direction) == (graph.compile_id, graph.direction)
        ]
        same = [g for g in found if g.compilation.cache_key == graph.cache_key]
        return (same or found)[-1] if found else None

    def frame_only(self) -> list[Compilation]:
        """Frames of which no graph was made: they failed before, or had nothing to compile."""
        used = {g.compilation.frame for g in self.graphs}
        return [f for f in self.frames if f.id not in used]

    def stages_of_frame(self, frame: Compilation) -> list[Stage]:
        return [r for r in self._records if isinstance(r, Stage) and r.compilation == frame.id]

    def _incidents(self, kind: str) -> list[Incident]:
        return [r for r in self._records if isinstance(r, Incident) and r.kind == kind]

    @property
    def graph_breaks(self) -> list[Incident]:
        return self._incidents("graph-break")

    @property
    def recompiles(self) -> list[Incident]:
        return self._incidents("recompile")

    @property
    def failures(self) -> list[Incident]:
        return [self._placed(incident) for incident in self._incidents("failure")]

    def _placed(self, incident: Incident) -> Incident:
        """One without a line of its own gets that of its function, whichever compilation of it says it."""
        if incident.origin:
            return incident
        function = incident.compile_id.partition("/")[0]
        frames = [f for f in self.frames if f.origin and f.compile_id.partition("/")[0] == function]
        same = [f for f in frames if f.compile_id == incident.compile_id]
        return replace(incident, origin=(same or frames)[0].origin[:1]) if frames else incident

    def __repr__(self) -> str:
        return f"<Stages of {len(self.graphs)} graphs>"


def user_lines(provenance: Provenance) -> tuple[Frame, ...]:
    """The user's lines that a launch computes, each once."""
    return tuple(dict.fromkeys(node.frames[0] for node in provenance.nodes if node.frames))


def _is_named(graph: StagedGraph, position: int, which: str | int) -> bool:
    if isinstance(which, int):
        return position == which
    compilation = graph.compilation
    return which in (compilation.compile_id, graph.name, compilation.name)


def _free_name(stage: Stage, found: dict[str, Stage]) -> str:
    """Passes run more than once; other stages that come again replace what was there."""
    if not stage.name.startswith("pass ") or stage.name not in found:
        return stage.name
    number = 2
    while f"{stage.name} ({number})" in found:
        number += 1
    return f"{stage.name} ({number})"


_ORDER = (
    "dynamo", "fx", "guards", "pre_grad_input", "pass pre_grad_passes", "pre_grad", "joint_input", "joint",
    "pass joint_graph_passes", "joint_optimized", "aot_forward", "aot_backward", "aot_inference", "runnable",
    "post_grad_input", "pass post_grad_passes", "post_grad", "schedule_before", "schedule", "lowered",
    "pass gcu_passes", "fused", "dag", "choreo", "host_wrapper", "output_code", GCU, "times",
)  # fmt: skip


def _rank(name: str) -> int:
    kind = name.partition("/")[0] if name.startswith("pass ") else name
    return _ORDER.index(kind) if kind in _ORDER else _ORDER.index("post_grad")


def _shown_name(name: str) -> str:
    return "aot" if name.startswith("aot_") else name
