"""What `kernelscope run` says at the end: how it ended, what was seen, and the most useful next command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from kernelscope.errors import RunError
from kernelscope.events import ABOUT_NOTHING, Finding
from kernelscope.store import folder
from kernelscope.store.flight.ending import Ending, ending_of
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import call_counts, counted
from kernelscope.text.visible import one_line
from kernelscope.text.widths import shortened, wrapped

from .rank_story import Ranks, ranks_in

_MOST_LINES = 5
_NEXT = "  next: "
_FEW = 5000  # calls whose values are looked through
# What says that something is wrong with the program, worst first; other findings are about the recording.
_WRONG = ("watch", "watch-late", "nan", "unowned-write", "undeclared-write", "never-written")


@dataclass(frozen=True, slots=True)
class Story:
    """A few lines; `is_urgent` if they are worth printing where nobody watches."""

    lines: list[str]
    is_urgent: bool

    def text(self, width: int = 0) -> str:
        """At most five lines of a terminal that is so wide; a command at the end is never cut."""
        lines = [one_line(line) for line in self.lines]
        if not width:
            return "\n".join(lines)
        command = [lines.pop()] if lines[-1].startswith(_NEXT) else []
        spare = _MOST_LINES - len(command) - len(lines)
        shown: list[str] = []
        for line in lines:
            pieces = list(wrapped(shortened(line, (spare + 1) * (width - 6)), width))
            if len(pieces) > spare + 1:
                pieces = [shortened(line, width)]
            spare -= len(pieces) - 1
            shown += pieces
        return "\n".join([*shown, *command])


def story_of(path: Path) -> Story:
    """Of a run that has just ended."""
    if not folder.parts(path):
        return Story([f"kernelscope: nothing was recorded: no process imported torch ({path})"], False)
    try:
        return _story(path)
    except RunError as error:
        return Story([f"kernelscope: {error}"], True)


def _story(path: Path) -> Story:
    ending, runs = ending_of(path), [StoredRun(part) for part in folder.parts(path)]
    ranks = ranks_in(path, runs)
    calls = sum(len(run) for run in runs)
    word = shlex.quote(str(path))
    lines: list[str] = []
    next_command = f"kernelscope ranks {word}" if ranks.have_hashes else f"kernelscope show {word}"
    if ending.kind not in ("normal", "unknown", "running"):
        lines += _ended(ending)
        next_command = f"kernelscope show --crash {word}"
    everything = [(run, f) for run in runs for f in _findings(run)]
    nothing = [f for _, f in everything if f.kind in ABOUT_NOTHING]  # of workers too, which compile nothing
    findings = [(run, f) for run, f in everything if f.kind not in ABOUT_NOTHING]
    wrong = sorted((pair for pair in findings if pair[1].kind in _WRONG), key=_how_bad)
    if ending.hit is not None:
        next_command = f"kernelscope show {word} --call {ending.hit.call}"
    elif wrong and not lines:
        run, finding = wrong[0]
        next_command = f"kernelscope show {word}{ranks.chosen(run)} --call {max(finding.call, 0)}"
    if findings and ending.hit is None:
        lines.append(_of_findings(wrong or findings, len(findings), ranks))
    if not calls and ending.kind != "crash":
        lines.append(_why_nothing(nothing))
        if ending.kind == "normal":
            next_command = f"kernelscope stages {word}"
    lines.append(_recorded(runs, calls, ranks))
    head, *rest = lines[: _MOST_LINES - 1]
    shown = [f"kernelscope: {head}", *(f"  {line}" for line in rest), f"{_NEXT}{next_command}"]
    is_urgent = ending.kind == "crash" and bool(ending.status or _executing(ending))
    # What starts many ranks seldom has a terminal, and its log is read afterwards.
    return Story(shown, is_urgent or bool(ranks.parts))


def _how_bad(found: tuple[StoredRun, Finding]) -> int:
    return _WRONG.index(found[1].kind)


def _findings(run: StoredRun) -> list[Finding]:
    return run.findings if len(run) <= _FEW else run.noted_findings()


def _executing(ending: Ending) -> bool:
    """A pool ends its workers with a signal: that alone is not worth a word."""
    return ending.crash is not None and bool(ending.crash.executing)


def _ended(ending: Ending) -> list[str]:
    lines = [ending.headline]
    if ending.hit is not None:
        lines.append(str(ending.hit).splitlines()[0])
    crash = ending.crash
    if crash is not None and crash.executing:
        call = crash.executing[-1]
        where = f" at {call.origin}" if call.origin else ""
        done = f"completed through {crash.completed}" if crash.completed >= 0 else "nothing had completed"
        what = f"[{call.kind}] {call.kernel_name}{where}"
        lines.append(f"{done}; call {call.index} was executing: {what}")
    elif crash is not None and crash.last is not None:
        call = crash.last
        lines.append(f"no recorded kernel was executing; the last was call {call.index}: {call.kernel_name}")
    return lines


def _of_findings(found: list[tuple[StoredRun, Finding]], all_of_them: int, ranks: Ranks) -> str:
    run, finding = found[0]
    more = f" ({counted(all_of_them, 'finding')} in all)" if all_of_them > 1 else ""
    return f"{ranks.of(run)}{str(finding).splitlines()[0]}{more}"


def _why_nothing(findings: list[Finding]) -> str:
    """A process that was killed did not get to say it."""
    told = [f.message for f in findings if f.kind in ABOUT_NOTHING]
    return told[0] if told else "no kernel of compiled code ran"


def _recorded(runs: list[StoredRun], calls: int, ranks: Ranks) -> str:
    kernels = len({kernel.name for run in runs for kernel in run.kernels})
    graphs = sum(len(run.graphs) for run in runs)
    who = f" of {len(runs)} processes" if len(runs) > 1 else ""
    return f"recorded {call_counts(calls, kernels, graphs)}{ranks.recorded_by() if ranks.parts else who}"
