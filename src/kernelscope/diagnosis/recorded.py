"""One recorded execution of the script: how it ended, and what its run shows."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kernelscope.events import Finding, Frame
from kernelscope.processes.signals import Terminated
from kernelscope.stages.undefined_values import UndefinedMemory, undefined_memory
from kernelscope.startup.recorded_child import exact_status, watch
from kernelscope.store import folder
from kernelscope.store.flight.ending import Ending, ending_of
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.process_ends import how_it_ended

RECORDING = "--stages --values=stats"
EAGER = {"TORCH_COMPILE_DISABLE": "1"}
_FAILED = ("exception", "status", "crash")
_FEW = 100_000  # calls whose values are looked through


@dataclass(frozen=True)
class Recorded:
    """What `kernelscope run` left."""

    path: Path
    status: int  # below zero: a signal
    heard: tuple[int, ...] = ()  # signals that were meant for this process

    @cached_property
    def runs(self) -> list[StoredRun]:
        return [StoredRun(part) for part in folder.parts(self.path)]

    @cached_property
    def ending(self) -> Ending:
        if self.runs:
            return ending_of(self.path)
        kind = "status" if self.status else "normal"
        return Ending(f"the program {how_it_ended(self.status)}", kind, "", self.status)

    @property
    def failed(self) -> bool:
        return self.ending.kind in _FAILED and not self.has_left_early

    @property
    def has_left_early(self) -> bool:
        """Whether it ended with os._exit(0), or the like: not a failure. How a child ended is not known."""
        crash = self.ending.crash
        if crash is None or crash.executing or crash.exception:
            return False
        return self.ending.status == 0 and crash.path == self.path

    @property
    def interruption(self) -> KeyboardInterrupt | None:
        """Ctrl-C, or a signal that was meant for this process and that `watch` has passed on.

        A program may handle it and exit with any status.
        """
        came = {-self.status, *(self.heard if self.status else ())}
        for number in (signal.SIGTERM, signal.SIGHUP):
            if number in came:
                return Terminated(number)
        was_ended = signal.SIGINT in came or self.ending.kind == "interrupted"
        return KeyboardInterrupt() if was_ended else None

    @cached_property
    def calls(self) -> int:
        return sum(len(run) for run in self.runs)

    @cached_property
    def nan(self) -> Finding | None:
        """Where the first NaN was made out of numbers."""
        for run in self.runs:
            found = run.findings if len(run) <= _FEW else run.noted_findings()
            first = next((f for f in found if f.kind in ("nan", "watch", "watch-late")), None)
            if first is not None:
                return first
        return None

    @property
    def failure(self) -> str:
        """In one line: the exception, or how the process ended."""
        return self.ending.exception.partition("\n")[0] or self.ending.headline.removeprefix("the program ")

    @property
    def whole_failure(self) -> str:
        return self.ending.exception or self.failure

    @cached_property
    def failing_line(self) -> Frame | None:
        """The user's line at which it failed: of the exception, or of the kernel that was executing."""
        crash = self.ending.crash
        if crash is not None and crash.executing:
            return own(crash.executing[-1].origin)
        for run in self.runs:
            at = str(run.metadata.get("exception_at", ""))
            if at:
                return _frame(at)
        return None

    def line_of_call(self, index: int) -> Frame | None:
        for run in self.runs:
            if 0 <= index < len(run):
                return own(run.select(first=index, limit=1)[0].origin)
        return None

    def undefined_memory(self, index: int) -> UndefinedMemory | None:
        """Memory of torch.empty that a call computes from."""
        for run in self.runs:
            if not 0 <= index < len(run):
                continue
            call = run.select(first=index, limit=1)[0]
            graph, launch = run.stages_of(call.graph), call.provenance
            stage = None if graph is None else graph.stages.get("post_grad")
            if stage is None or launch is None:
                return None
            found = undefined_memory(stage.text, [node.name for node in launch.nodes])
            return None if found is None else replace(found, line=own(found.line))
        return None

    def line_of_node(self, node: str) -> Frame | None:
        """The user's line of a node of a post-grad graph."""
        for run in self.runs:
            for graph in run.stages:
                for launch in graph.provenance:
                    for each in launch.nodes:
                        if node in (each.name, *each.pre_grad) and each.frames:
                            return own(each.frames[0])
        return None


def record(
    command: list[str], path: Path, options: str, environ: dict[str, str | None] | None = None
) -> Recorded:
    """Run and record it; an interruption of the program is one of the search."""
    made = folder.create(folder.named(path))
    heard: list[int] = []
    status = watch(command, made, options, aside=True, environ=environ, heard=heard)
    found = Recorded(made, exact_status(made, status), tuple(heard))
    if (ended := found.interruption) is not None:
        raise ended
    return found


def own(frame: Frame | None) -> Frame | None:
    """A line of a run that this process has just made: its file may be opened, also if the run has no end."""
    return None if frame is None else Frame(frame.file, frame.line, frame.function)


def _frame(text: str) -> Frame | None:
    """ "/home/me/train.py:12 in step" as it was recorded."""
    place, _, function = text.partition(" in ")
    file, _, line = place.rpartition(":")
    try:
        return Frame(file, int(line), function)
    except ValueError:
        return None
