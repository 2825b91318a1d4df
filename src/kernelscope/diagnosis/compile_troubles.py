"""What a run shows about compiling: nothing compiled, limits that were hit, graph breaks, recompilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelscope.events import ABOUT_NOTHING, Frame
from kernelscope.stages.records import Compilation, Incident
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted

_LIMIT = "recompile limit"
_TRACED = "dynamo"  # the stage of a frame that has a graph
_SHOW_ERRORS = (
    "let the failure end the program (no torch._dynamo.config.suppress_errors, TORCHDYNAMO_SUPPRESS_ERRORS, "
    "or try around the call); kernelscope why then finds the cause"
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing about compiling that a user would not expect."""

    kind: str  # nothing-compiled | recompiles
    what: str
    line: Frame | None = None
    reason: str = ""
    advice: str = ""  # where there is better advice than the usual
    is_compilers: bool = False  # the compiler failed, and the program goes on without it


@dataclass(frozen=True, slots=True)
class Compiling:
    """All of it."""

    trouble: Trouble | None = None
    remarks: list[str] = field(default_factory=list)  # usual things, such as a graph break


def compiling_of(runs: Sequence[StoredRun]) -> Compiling:
    breaks = [each for run in runs for each in run.stages.graph_breaks]
    again = [each for run in runs for each in run.stages.recompiles]
    remarks = []
    if breaks:
        remarks.append(
            f"{counted(len(breaks), 'graph break')}, the first {_at(breaks[0])}: {breaks[0].reason}"
        )
    if again:
        remarks.append(
            f"{counted(len(again), 'recompilation')}, the first {_at(again[0])}: {again[0].reason}"
        )
    return Compiling(_nothing(runs, breaks) or _limit(runs, again), remarks)


def _nothing(runs: Sequence[StoredRun], breaks: Sequence[Incident]) -> Trouble | None:
    if any(len(run) or any(not _is_failed(g.compilation) for g in run.stages.graphs) for run in runs):
        return None
    for run in runs:
        failed = {g.compilation.frame for g in run.stages.graphs}
        for frame in run.stages.frames:
            if frame.id not in failed and any(
                stage.name == _TRACED for stage in run.stages.stages_of_frame(frame)
            ):
                return None  # another backend than Inductor has it
    if not runs:
        what = "nothing was recorded: no process imported torch"
        advice = "give a script, with its arguments, that imports torch when it is run"
        return Trouble("nothing-compiled", what, advice=advice)
    failures = [each for run in runs for each in run.stages.failures]
    first = next((each for each in (*breaks, *failures) if each.origin), None)
    line = first.origin[0] if first is not None else None
    if breaks:
        what = "Dynamo left the whole function to Python because of a graph break"
        return Trouble("nothing-compiled", what, line, _plain(breaks[0].reason))
    told = [f.message for run in runs for f in run.noted_findings() if f.kind in ABOUT_NOTHING]
    why = told[0].removeprefix("no compiled code ran: ") if told else ""
    hidden = next((each for each in failures if each.stage != _TRACED), None)
    if hidden is not None:
        what = f"the compiler fails, and the program goes on without it: {hidden.reason}"
        line = hidden.origin[0] if hidden.origin else line
        return Trouble("nothing-compiled", what, line, why, _SHOW_ERRORS, is_compilers=True)
    return Trouble("nothing-compiled", why or "torch.compile was not used", line)


def _is_failed(graph: Compilation) -> bool:
    return graph.made == "failed"


def _limit(runs: Sequence[StoredRun], again: Sequence[Incident]) -> Trouble | None:
    hit = [f for run in runs for f in run.stages.failures if _LIMIT in f"{f.reason} {f.detail}".lower()]
    if not hit:
        return None
    of_it = [each for each in again if _frame_id(each) == _frame_id(hit[0])]
    line = next((each.origin[0] for each in (*of_it, *hit) if each.origin), None)
    name = line.function if line is not None else "a function"
    what = (
        f"{name} was compiled {counted(len(of_it) + 1, 'time')}, until Dynamo reached its limit; "
        "from then on it runs uncompiled"
    )
    return Trouble("recompiles", what, line, _plain(of_it[-1].reason) if of_it else "")


def _frame_id(incident: Incident) -> str:
    """Of the function: 0 of 0/8, its ninth compilation."""
    return incident.compile_id.partition("/")[0]


def _plain(reason: str) -> str:
    """Without the line of code that Dynamo adds, and without its columns."""
    return " ".join(reason.partition("  #")[0].split())


def _at(incident: Incident) -> str:
    if not incident.origin:
        return "in code without a known line"
    frame = incident.origin[0]
    return f"at {frame}"
