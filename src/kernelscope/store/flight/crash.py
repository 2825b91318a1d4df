"""What was going on when a recorded process ended without closing its recording."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelscope.errors import RunError
from kernelscope.events import Call, Site
from kernelscope.model.call import KernelCall
from kernelscope.model.kinds import view_of
from kernelscope.store import folder
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.process_ends import how_it_ended

from .reader import UNKNOWN, Cell, is_recording
from .replays import UNDER_WAY


@dataclass(frozen=True, slots=True)
class Crash:
    """How it ended: what had completed, what was executing, and what was queued behind it."""

    path: Path
    ended: str  # in words: "was killed by SIGSEGV"
    exception: str = ""
    executing: list[KernelCall] = field(default_factory=list)  # outermost first; empty: nothing was
    completed: int = -1  # the newest call that is known to have completed
    queued: int = 0
    last: KernelCall | None = None  # the newest call, when none was executing
    in_replay: bool = False  # the one that was executing may be a later one of the same replay

    def text(self) -> str:
        lines = [
            f"the program {self.ended}" + (f" ({self.exception.splitlines()[0]})" if self.exception else "")
        ]
        if self.executing:
            call = self.executing[-1]
            done = f"completed through {self.completed}" if self.completed >= 0 else "nothing had completed"
            more = f"; {self.queued} more were queued" if self.queued else ""
            lines.append(f"  {done}; call {call.index} was executing{more}:")
            lines += [f"    {line}" for line in describe(call)]
            if self.in_replay:
                lines.append(
                    "    it is in a replay of a CUDA graph, and a later call of that replay may be at fault;"
                )
                lines.append("    record with --mark-graphs to find out which")
            lines += [f"  inside call {c.index}: {c.kernel_name}" for c in reversed(self.executing[:-1])]
        elif self.last is not None:
            lines.append(
                f"  no recorded kernel was executing; the last one, call {self.last.index}, had completed:"
            )
            lines += [f"    {line}" for line in describe(self.last)]
        else:
            lines.append("  no kernel had been launched")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "ended": self.ended,
            "exception": self.exception or None,
            "completed_through": self.completed if self.completed >= 0 else None,
            "executing": [about(call) for call in self.executing],
            "queued": self.queued,
            "in_replay": self.in_replay,
            "last": about(self.last) if self.last is not None else None,
            "path": str(self.path),
        }


def describe(call: KernelCall) -> list[str]:
    where = f" at {call.origin}" if call.origin else ""
    grid = f" grid={call.grid}" if call.grid is not None else ""
    args = [
        f"  {name}: {arg.tensor.short.removeprefix('t: ') if arg.tensor else value}"
        for name, arg, value in zip(call.arg_names, call.arguments, call.args, strict=False)
    ]
    return [f"[{call.kind}] {call.kernel_name}{grid}{where}", *args]


def about(call: KernelCall) -> dict[str, Any]:
    return {
        "index": call.index,
        "kind": call.kind,
        "kernel_name": call.kernel_name,
        "grid": list(call.grid) if call.grid is not None else None,
        "origin": str(call.origin) if call.origin else None,
        "args": [
            {"name": a.name, "role": a.role, "tensor": a.tensor.short if a.tensor else None}
            for a in call.arguments
        ],
    }


def crash_in(path: Path) -> Crash | None:
    """The crash of a run: of its first process that is over and did not come to its end; None without one."""
    invocation = folder.read_invocation(path)
    for part in folder.parts(path):
        found = None if is_recording(part / folder.FLIGHT) else crash_of(part, invocation)
        if found is not None:
            return found if part == path or part.name.startswith("rank") else _of_child(found)
    return None


def _of_child(crash: Crash) -> Crash:
    """The command ended as it did; a process that it started may have ended in another way."""
    ended = f"started {crash.path.name}, a process that ended without closing its recording; it {crash.ended}"
    return replace(crash, ended=ended.removesuffix(" without closing its recording"))


def is_running(path: Path) -> bool | None:
    """Whether any part of a run is being recorded right now; None where that cannot be known."""
    found = [is_recording(part / folder.FLIGHT) for part in folder.parts(path)]
    return True if True in found else None if None in found else False


def crash_of(part: Path, invocation: folder.Invocation | None = None) -> Crash | None:
    """What a process left behind; None when its recording was closed and no exception ended it."""
    if (part / folder.DATABASE).stat().st_size == 0:
        return Crash(part, _ended(invocation))
    run = StoredRun(part)
    if not run.is_closed and run.stopped:
        return None  # how the program went on is not known
    exception = str(run.metadata.get("exception", ""))
    is_fault = "CUDA" in exception or "cuda" in exception or "accelerator" in exception.lower()
    if run.is_closed and not is_fault:
        return None
    return _told(run, invocation, exception, is_fault)


def _told(
    run: StoredRun, invocation: folder.Invocation | None, exception: str, is_fault: bool
) -> Crash | None:
    flight = run.flight
    cells = flight.cells
    executing = [cell for cell in cells if cell.is_executing]
    queued = 0
    completed = max((cell.index for cell in cells if not cell.is_executing), default=-1)
    on_device = _unfinished(cells, flight.streams)
    in_replay = False
    if on_device:
        over = _over_in_replay(run, on_device)
        in_replay = over is None and _call(run, on_device[0]).replay is not None
        on_device = on_device[over or 0 :]
        # The host is ahead of the device: what the markers say is what happened.
        executing, queued, completed = on_device[:1], len(on_device) - 1, on_device[0].index - 1
    elif executing:
        completed = executing[0].index - 1
    elif is_fault and run.is_closed:
        return None
    calls = [_call(run, cell) for cell in executing]
    last = _call(run, cells[-1]) if cells and not calls else None
    ended = _ended(invocation, is_closed=run.is_closed)
    if (invocation is None or invocation.status is None) and is_recording(run.path / folder.FLIGHT) is None:
        ended += f", or still runs ({UNKNOWN})"
    return Crash(run.path, ended, exception, calls, completed, queued, last, in_replay)


def _over_in_replay(run: StoredRun, unfinished: list[Cell]) -> int | None:
    """How many calls at the front, which a CUDA graph replayed, are over; None where that is not known."""
    told = run.metadata.get(UNDER_WAY)
    over = told.get(str(unfinished[0].index)) if isinstance(told, dict) else None
    if not isinstance(over, int) or not 0 <= over < len(unfinished):
        return None
    replay = _call(run, unfinished[0]).replay
    same = [cell for cell in unfinished if cell.graph_call == unfinished[0].graph_call]
    return over if replay is not None and over < len(same) else None


def _unfinished(cells: list[Cell], streams: list[tuple[int, int]]) -> list[Cell]:
    """Calls on the stream whose oldest unfinished call is the oldest of all."""
    waiting: dict[int, list[Cell]] = {}
    for cell in cells:
        if cell.stream and cell.stream <= len(streams) and cell.index + 1 > streams[cell.stream - 1][1]:
            waiting.setdefault(cell.stream, []).append(cell)
    return min(waiting.values(), key=lambda found: found[0].index, default=[])


def _call(run: StoredRun, cell: Cell) -> KernelCall:
    """The call of a cell: from run.db if it was written, otherwise from the flight recorder."""
    written = run.read_calls([cell.index])
    if written:
        return view_of(run, written[0])
    stored = run.sites.get(cell.site)
    site: Site | None = stored[0] if stored else run.flight.sites.get(cell.site)
    if site is None:
        raise RunError(f"{run.path / folder.FLIGHT} is damaged: it refers to unknown site {cell.site}")
    return view_of(run, Call(cell.index, site, cell.graph_call, start_ns=cell.start_ns))


def _ended(invocation: folder.Invocation | None, *, is_closed: bool = False) -> str:
    unclosed = "" if is_closed else " without closing its recording"
    if invocation is None or invocation.status is None:
        return f"ended{unclosed or ' with an error'}"
    ended = how_it_ended(invocation.status, of_shell=not is_closed)  # nothing was closed: it was killed
    return ended if ended.startswith("was killed") else f"{ended}{unclosed}"
