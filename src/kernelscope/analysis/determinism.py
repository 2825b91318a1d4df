"""Which kernels give varying results: from runs that should be identical."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelscope.analysis.alignment.align_calls import align
from kernelscope.analysis.alignment.aligned_calls import Alignment
from kernelscope.analysis.diff.comparable import check_alignment, check_runs
from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.analysis.diff.divergence_parts import (
    DIFFERENT_CONFIG,
    DIFFERENT_KERNEL,
    INPUTS_DIFFER,
    NONDETERMINISTIC,
)
from kernelscope.analysis.diff.pairs import compare
from kernelscope.analysis.diff.result_text import as_json, lines, number_lines, source_line
from kernelscope.analysis.diff.search import Search
from kernelscope.analysis.diff.verdicts import judge
from kernelscope.errors import RunError
from kernelscope.events import Frame
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.text.amounts import counted
from kernelscope.text.frames import frame_form

from .tensor_errors import Errors, largest
from .varying_programs import advice_for, program_difference

_MOST = 2000  # pairs that are looked into


@dataclass(frozen=True, slots=True)
class Suspect:
    """A kernel that wrote different values for the same inputs."""

    kernel_name: str
    kind: str
    index: int  # the first call that differed, in the first run
    argument: str
    origin: Frame | None
    graph: str
    differed: int  # in so many repeats
    repeats: int
    calls: int  # so many calls of it, over all repeats
    replays: int = 0  # launches of that call alone; 0: it was not replayed
    replays_differed: int = 0
    reads_unwritten: bool = False
    not_replayed: str = ""  # why
    errors: tuple[Errors, ...] = ()

    @property
    def is_confirmed(self) -> bool:
        """Whether it also differed when it was launched alone."""
        return self.replays_differed > 0 or self.reads_unwritten

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OF_SUSPECT} | {
            "verdict": NONDETERMINISTIC, "origin": frame_form(self.origin), "graph": self.graph or None,
            "confirmed": self.is_confirmed, "not_replayed": self.not_replayed or None, **largest(self.errors),
        }  # fmt: skip


_OF_SUSPECT = (
    "index", "kernel_name", "kind", "argument", "differed", "repeats", "calls", "replays", "replays_differed",
    "reads_unwritten",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeterminismResult:
    """Whether all runs of a program were identical, and which kernels vary. True if something varies.

    Example:
        result = kernelscope.check_determinism(step, batch)
        if result:
            print(result)
    """

    runs: int
    calls: int  # in the first run
    kernels: tuple[Suspect, ...] = ()  # accused: they differed, and alone they differed too
    unconfirmed: tuple[Suspect, ...] = ()  # they differed, but not alone, or could not be replayed
    divergence: Divergence = field(default_factory=Divergence)  # the first one
    unexplained: str = ""  # the results differ, but no recorded call does
    by_the_program: str = ""  # what the program itself did differently, where no kernel is at fault
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kernels or self.unconfirmed or self.divergence or self.unexplained)

    def to_json(self) -> dict[str, Any]:
        first = next(iter((*self.kernels, *self.unconfirmed)), None)
        found = as_json(self.divergence)["divergence"]
        return {
            "divergence": found if first is None else first.to_json() | {"first_difference": found},
            "runs": self.runs,
            "calls": self.calls,
            "kernels": [each.to_json() for each in self.kernels],
            "unconfirmed": [each.to_json() for each in self.unconfirmed],
            "unexplained": self.unexplained or None,
            "by_the_program": self.by_the_program or None,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def compare_runs(runs: Sequence[Run]) -> DeterminismResult:
    """Every repeat against the first run. Suspects are not yet replayed: see `accuse`."""
    if len(runs) < 2:
        raise RunError(f"{len(runs)} runs: at least two are needed to see a difference")
    first, seen, divergence, by_itself = runs[0], _Seen(len(runs) - 1), Divergence(), ""
    notes: dict[str, None] = {}
    for repeat in runs[1:]:
        check_runs(first, repeat)
        alignment = align(first, repeat, found=True)
        check_alignment(first, repeat, alignment)
        search = Search(first, repeat, alignment)
        found = _that_matters(search.divergence(), notes)
        if found and (not divergence or found.index < divergence.index):
            divergence, by_itself = found, program_difference(found, search.of_a, search.of_b)
        seen.look(search, alignment)
    suspects = seen.suspects()
    return DeterminismResult(
        len(runs), len(first), unconfirmed=suspects, divergence=divergence, notes=tuple(notes),
        by_the_program="" if suspects else by_itself,
    )  # fmt: skip


def accuse(result: DeterminismResult, replays: Mapping[int, Any]) -> DeterminismResult:
    """The result after its suspects were replayed alone; `replays` by index of their first call."""
    told = [_with_replay(suspect, replays.get(suspect.index)) for suspect in result.unconfirmed]
    return replace(
        result,
        kernels=(*result.kernels, *(s for s in told if s.is_confirmed)),
        unconfirmed=tuple(s for s in told if not s.is_confirmed),
    )


def _with_replay(suspect: Suspect, replay: Any) -> Suspect:
    if replay is None:
        return replace(suspect, not_replayed="the call did not occur again")
    if replay.kernel_name != suspect.kernel_name:
        return replace(suspect, not_replayed=f"{replay.kernel_name} was called instead")
    return replace(
        suspect, replays=replay.times, replays_differed=replay.differed, reads_unwritten=replay.uninitialised,
        not_replayed=replay.error,
    )  # fmt: skip


def _that_matters(divergence: Divergence, notes: dict[str, None]) -> Divergence:
    """A different autotuned config with identical values is only worth a note."""
    harmless = divergence.verdict in (DIFFERENT_CONFIG, DIFFERENT_KERNEL) and not divergence.differences
    if harmless and not divergence.compared.differing:
        notes[f"{divergence.kernel_name}: {divergence.reason}; the values are identical"] = None
        return Divergence()
    return divergence


class _Seen:
    """Kernels that wrote different values for the same inputs, over all repeats."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._suspects: dict[tuple[str, str], Suspect] = {}

    def look(self, search: Search, alignment: Alignment) -> None:
        in_this_run: set[tuple[str, str]] = set()
        for pair in alignment.different_with_same_inputs()[:_MOST].tolist():
            a, b = search.of_a.at(int(alignment.a[pair])), search.of_b.at(int(alignment.b[pair]))
            difference = compare(a, b)
            if difference.inputs or not difference.outputs:
                continue
            if judge(a, b, search.of_a, search.of_b)[0] != NONDETERMINISTIC:
                continue
            self._note(a, difference.outputs[0].argument, in_this_run)

    def _note(self, call: KernelCall, argument: str, in_this_run: set[tuple[str, str]]) -> None:
        key = (call.kernel_name, str(call.origin))
        graph = call.graph
        known = self._suspects.get(key) or Suspect(
            call.kernel_name, call.kind, call.index, argument, call.origin,
            f"{graph.name or graph.id} ({graph.direction})" if graph is not None else "", 0, self._repeats, 0,
        )  # fmt: skip
        if call.index < known.index:
            known = replace(known, index=call.index, argument=argument)
        self._suspects[key] = replace(
            known, calls=known.calls + 1, differed=known.differed + (key not in in_this_run)
        )
        in_this_run.add(key)

    def suspects(self) -> tuple[Suspect, ...]:
        return tuple(sorted(self._suspects.values(), key=lambda s: s.index))


# -- words -----------------------------------------------------------------------------------------------


def _lines(result: DeterminismResult) -> Iterator[str]:
    if not result:
        yield f"deterministic: {counted(result.calls, 'call')} identical in {result.runs} runs"
    if result.unexplained:
        yield f"not deterministic: {result.unexplained}"
    for suspect in result.kernels:
        yield f"nondeterministic-kernel: call {suspect.index}"
        yield from _about(suspect)
    for suspect in result.unconfirmed:
        yield f"suspect, not confirmed: call {suspect.index}"
        yield from _about(suspect)
    if result.divergence and not (result.kernels or result.unconfirmed):
        yield from lines(result.divergence)
        if result.by_the_program:
            yield f"  no kernel is at fault: the program itself varies: {result.by_the_program}"
            yield f"  {advice_for(result.divergence)}"
        elif result.divergence.verdict == INPUTS_DIFFER:
            yield "  no kernel is at fault; start the runs from the same state (seeds, order of data)"
    elif result.divergence:
        s = result.divergence.spread
        yield f"  after the first one, {s.differing:,} of {s.later:,} calls differ"
    yield from (f"  note: {note}" for note in result.notes)


def _about(s: Suspect) -> Iterator[str]:
    yield f"  [{s.kind}] {s.kernel_name}, {s.argument}"
    yield from source_line(s.origin)
    calls = counted(s.calls, "call")
    yield f"  same inputs, different outputs in {s.differed} of {s.repeats} repeats ({calls})"
    yield from number_lines(s.errors)
    if s.reads_unwritten:
        yield (
            "  alone: it depends on uninitialised memory: it reads such memory, or leaves part of its output "
            "unwritten"
        )
    elif s.replays:
        yield f"  alone: {s.replays_differed} of {s.replays} launches with the same inputs differed"
    if s.not_replayed:
        yield f"  could not be replayed alone: {s.not_replayed}"
    elif s.replays and not s.is_confirmed:
        yield "  alone its output is identical: something else may write to its memory"
