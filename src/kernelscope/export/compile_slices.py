"""What the compiler did, as slices: each frame and graph, and in it the stages with their passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelscope.stages import Stages
from kernelscope.stages.records import FRAME, Compilation, Record, Stage
from kernelscope.store.run_db.codec import storable

_NOT_SHOWN = ("fx", "dag", "times")  # the same once more, as JSON


@dataclass(frozen=True, slots=True)
class CompileSlice:
    track: str
    name: str
    category: str  # "compilation", "stage", "pass", or "graph-break", "recompile", "failure"
    start: int
    length: int
    args: dict[str, Any] = field(default_factory=dict)


def compile_slices(stages: Stages, records: Sequence[Record]) -> Iterator[CompileSlice]:
    """Those with a time: what came out of a cache has the stages of another process, and none."""
    by_owner: dict[int, list[Stage]] = {}
    for record in records:
        if isinstance(record, Stage) and record.name not in _NOT_SHOWN:
            by_owner.setdefault(record.compilation, []).append(record)
    for owner in [*stages.frames, *(graph.compilation for graph in stages.graphs)]:
        if owner.start_ns > 0 and owner.duration_ns >= 0:
            yield from _compilation(owner, by_owner.get(owner.id, []))


def _compilation(owner: Compilation, stages: list[Stage]) -> Iterator[CompileSlice]:
    begin, end = owner.start_ns, owner.start_ns + owner.duration_ns
    what = "frame" if owner.direction == FRAME else owner.direction
    # Each its own track: a program compiles in more than one thread.
    track = storable(f"compile {owner.compile_id} {what} #{owner.id}")
    args = {
        "compile_id": storable(owner.compile_id),
        "made": owner.made,
        "cache_key": storable(owner.cache_key),
    }
    if owner.origin:
        args["function"] = storable(str(owner.origin[0]))
    yield CompileSlice(
        track, storable(f"{owner.compile_id} {what}"), "compilation", begin, owner.duration_ns, args
    )
    inside = sorted((s for s in stages if begin <= s.start_ns <= end), key=lambda s: s.start_ns)
    reached = [s for s in inside if s.duration_ns < 0]
    ends = [*(stage.start_ns for stage in reached[1:]), end]
    for stage, until in zip(reached, ends, strict=False):
        yield CompileSlice(
            track, storable(stage.name), "stage", stage.start_ns, until - stage.start_ns, _about(stage)
        )
    for stage in inside:
        if stage.duration_ns >= 0:
            yield _pass(track, stage, reached, end)


def _pass(track: str, stage: Stage, reached: list[Stage], end: int) -> CompileSlice:
    """Not beyond the stage that follows: slices of a track lie inside of one another or apart."""
    until = min([end, *(s.start_ns for s in reached if s.start_ns > stage.start_ns)])
    length = min(stage.duration_ns, until - stage.start_ns)
    return CompileSlice(track, storable(stage.name), "pass", stage.start_ns, length, _about(stage))


def _about(stage: Stage) -> dict[str, Any]:
    return {"language": stage.language, "lines": stage.text.count("\n") + 1}
