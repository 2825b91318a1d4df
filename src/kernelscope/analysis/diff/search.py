"""The first divergence of two runs, and its verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelscope.analysis.alignment.align_calls import align
from kernelscope.analysis.alignment.aligned_calls import Alignment, Gap
from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.alignment.identity import OTHER_CODE
from kernelscope.analysis.tensor_errors import Errors
from kernelscope.errors import RunError
from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun, load

from .alike_calls import AlikeCalls, are_others, with_equal_inputs, writers_that_differ
from .comparable import check_alignment, check_runs, name_of
from .divergence import Divergence
from .divergence_parts import (
    DIFFERENT_CONFIG,
    DIFFERENT_KERNEL,
    EXTRA_CALL,
    INPUTS_DIFFER,
    MISSING_CALL,
    Compared,
    Source,
    about,
)
from .pairs import ArgumentDifference, PairDifference, compare
from .saved_errors import saved_errors
from .spread import spread
from .structure import judge_gap, other_site
from .threads import on_thread, thread_fields, thread_notes
from .trace import Writer, writer_of
from .verdicts import judge

AnyRun = Run | str | os.PathLike[str]

_MOST_GAPS = 50  # looked into for their values; what comes of the others shows where it is read


def diff(a: AnyRun, b: AnyRun) -> Divergence:
    """Where two runs first differ, why, and how it goes on; false when they agree.

    The runs may have other calls: another fusion, another torch, a call more or less. They need hashes
    (values="hash"); with values="save" the numbers are compared as well.

    Example:
        divergence = kernelscope.diff("train-1", "train-2")
        print(divergence)
    """
    first, second = _loaded(a), _loaded(b)
    check_runs(first, second)
    alignment = align(first, second)
    check_alignment(first, second, alignment)
    return Search(first, second, alignment).divergence()


def _loaded(run: AnyRun) -> Run:
    return run if isinstance(run, Run) else load(os.fspath(run))


class Search:
    """Walks through the pairs that differ, in order, until one explains itself."""

    def __init__(self, a: Run, b: Run, alignment: Alignment) -> None:
        self.a, self.b, self.alignment = a, b, alignment
        self.of_a = Reader(a, alignment.columns_a.index)
        self.of_b = Reader(b, alignment.columns_b.index)
        self.different = alignment.different()
        self._alike = AlikeCalls(alignment, self.different, self.of_b)

    def divergence(self) -> Divergence:
        found = self._first()
        notes = (*found.notes, *self._notes(found), *thread_notes(self.alignment))
        thread = thread_fields(self.alignment, found)
        return replace(found, compared=self._compared(), notes=notes, **thread)

    def _first(self) -> Divergence:
        gaps = [gap for gap in self.alignment.gaps if gap.a and gap.b][:_MOST_GAPS]
        for pair in self.different.tolist():
            while gaps and gaps[0].before <= pair:
                if found := self._in_gap(gaps.pop(0)):
                    return found
            if found := self.at_pair(pair):
                return found
        for gap in gaps:
            if found := self._in_gap(gap):
                return found
        return self._structural()

    # -- values ----------------------------------------------------------------------------------------

    def at_pair(self, pair: int) -> Divergence | None:
        """The divergence that shows here, which may have its cause in an earlier place."""
        at_a, at_b = int(self.alignment.a[pair]), int(self.alignment.b[pair])
        a, b = self.of_a.at(at_a), self.of_b.at(at_b)
        difference = compare(a, b) if a.arg_names == b.arg_names else None  # else another kernel is here
        if difference is not None:
            _check_kinds(difference)
            if not difference:
                self._alike.use(at_b)
                return None
            if not difference.inputs:
                return self._same_inputs(pair, a, b)
        if self._alike.is_elsewhere(at_a, a):
            return None
        if (other := self._alike.that_read_the_same(at_a, a)) is not None:
            return self._same_inputs(pair, a, other)
        if difference is None:
            return self._other_calls([a], [b])
        return self._inputs_differ(pair, at_a, at_b, a, b, difference)

    def _inputs_differ(
        self, pair: int, at_a: int, at_b: int, a: KernelCall, b: KernelCall, difference: PairDifference
    ) -> Divergence:
        reason = "its inputs differ"
        first = difference.inputs[0]
        if first.what != "values":
            values = f"{first.what} of {first.argument}: {first.a} and {first.b}"
            source = Source("number" if first.what == "number" else "form", values)
            return self._made(pair, a, b, INPUTS_DIFFER, reason, difference.inputs, source)
        writer_a = writer_of(self.of_a, at_a, a, first.position)
        writer_b = writer_of(self.of_b, at_b, b, first.position)
        if cause := self._cause_in_structure(writer_a, writer_b, a):
            return cause
        if cause := self._between_writers(pair, writer_a, writer_b):
            return cause
        if are_others(self.alignment, writer_a, writer_b):
            later = self.different[self.different > pair]
            cause_at = with_equal_inputs(self.alignment, later, self.of_a, self.of_b)
            if cause_at is not None and (cause := self.at_pair(cause_at)):
                return cause
        source = self._source(a, first, writer_a, writer_b)
        return self._made(pair, a, b, INPUTS_DIFFER, reason, difference.inputs, source)

    def _cause_in_structure(
        self, writer_a: Writer | None, writer_b: Writer | None, seen: KernelCall
    ) -> Divergence | None:
        """What wrote the differing input is a call that the other run does not have."""
        gap = None
        if writer_a is not None and self.alignment.partner(writer_a.position) is None:
            gap = self.alignment.gap_with(a=writer_a.position)
        elif writer_b is not None and self.alignment.partner_of_second(writer_b.position) is None:
            gap = self.alignment.gap_with(b=writer_b.position)
        if gap is None and writer_a is not None and writer_b is not None:
            gap = self._pair_of_others(writer_a.position, writer_b.position)
        if gap is not None:
            found = self._gap_divergence(gap, writer_a, writer_b)
            return found.with_notes(f"it shows at call {seen.index}, {seen.kernel_name}, whose inputs differ")
        return None

    def _between_writers(self, pair: int, a: Writer | None, b: Writer | None) -> Divergence | None:
        """What wrote the differing input read the same, though it was paired with other calls."""
        found = writers_that_differ(self.alignment, self.of_a, self.of_b, a, b)
        return found and self._same_inputs(pair - 1, self.of_a.at(found[0]), self.of_b.at(found[1]))

    def _same_inputs(self, pair: int, a: KernelCall, b: KernelCall) -> Divergence:
        verdict, reason, source = judge(a, b, self.of_a, self.of_b)
        return self._made(pair, a, b, verdict, reason, compare(a, b).outputs, source)

    def _pair_of_others(self, at_a: int, at_b: int) -> Gap | None:
        """Two calls at the same place whose kernels take other arguments: they cannot be compared."""
        if (
            self.alignment.partner(at_a) != at_b
            or self.of_a.at(at_a).arg_names == self.of_b.at(at_b).arg_names
        ):
            return None
        return Gap(range(at_a, at_a + 1), range(at_b, at_b + 1), 0)

    def _source(
        self, call: KernelCall, first: ArgumentDifference, a: Writer | None, b: Writer | None
    ) -> Source:
        name = call.wrapper_names[first.position] or first.argument
        if a is not None and b is not None and self.alignment.partner(a.position) == b.position:
            made_a, made_b = self.of_a.at(a.position), self.of_b.at(b.position)
            who = f"call {made_a.index}, {made_a.kernel_name}, wrote the same values in both runs"
            text = f"{who}; {name} was then modified by an unrecorded writer"
            return Source("unowned-write", text, made_a.index, made_b.index)
        if a is not None or b is not None:
            told = [
                f"in the {which} run call {c.index}, {c.kernel_name}, wrote it"
                + on_thread(self.alignment, **{side: c.index})
                for which, side, reader, writer in (
                    ("first", "a", self.of_a, a),
                    ("second", "b", self.of_b, b),
                )
                if writer is not None and (c := reader.at(writer.position))
            ]
            indices = [r.at(w.position).index if w else None for r, w in ((self.of_a, a), (self.of_b, b))]
            return Source("call", f"{name}: " + ", ".join(told), *indices)
        if call.graph is not None:
            return Source("graph-input", f"{name} is an input of the graph, and no recorded call wrote it")
        hint = "" if self._are_all_recorded() else "; --ops all records eager operators too"
        return Source("outside", f"no recorded call wrote {name}" + hint)

    def _are_all_recorded(self) -> bool:
        return all(run.info.settings.get("ops") == "all" for run in (self.a, self.b))

    def _made(
        self,
        pair: int,
        a: KernelCall,
        b: KernelCall,
        verdict: str,
        reason: str,
        differences: tuple[ArgumentDifference, ...],
        source: Source | None = None,
    ) -> Divergence:
        return Divergence(
            verdict=verdict, reason=reason, index_a=a.index, index_b=b.index,
            argument=differences[0].argument if differences else None, differences=differences, source=source,
            spread=spread(self.alignment, self.different, self.of_a, self.of_b, pair, a),
            errors=tuple(self._errors(a, b, differences)), **about(a, b),
        )  # fmt: skip

    def _errors(
        self, a: KernelCall, b: KernelCall, differences: tuple[ArgumentDifference, ...]
    ) -> Iterator[Errors]:
        if isinstance(self.a, StoredRun) and isinstance(self.b, StoredRun):
            yield from saved_errors(differences, (self.a, a.index), (self.b, b.index))

    # -- structure -------------------------------------------------------------------------------------

    def _in_gap(self, gap: Gap) -> Divergence | None:
        """Other calls on both sides that read the same and left other values."""
        a, b = self.of_a.many(gap.a), self.of_b.many(gap.b)
        return self._other_calls(a, b)

    def _other_calls(self, a: list[KernelCall], b: list[KernelCall]) -> Divergence | None:
        found = judge_gap(a, b)
        if found is None:
            return None
        call, other, name = found.call, found.other, found.call.arg_names[found.position]
        differences: tuple[ArgumentDifference, ...] = ()
        if found.other_position is not None:
            values = call.post_hashes[found.position], other.post_hashes[found.other_position]
            at = found.other_position
            differences = (ArgumentDifference(found.position, name, "after", "values", *values, other=at),)
        return Divergence(
            verdict=DIFFERENT_KERNEL, reason=_other_names(a, b), index_a=call.index, index_b=other.index,
            argument=name, differences=differences,
            errors=tuple(self._errors(call, other, differences)), **about(call, other),
        )  # fmt: skip

    def _gap_divergence(
        self, gap: Gap, writer_a: Writer | None = None, writer_b: Writer | None = None
    ) -> Divergence:
        a, b = self.of_a.many(gap.a[:1000]), self.of_b.many(gap.b[:1000])
        of_a = self.of_a.at(writer_a.position) if writer_a and writer_a.position in gap.a else None
        of_b = self.of_b.at(writer_b.position) if writer_b and writer_b.position in gap.b else None
        call, writer = (of_a, writer_a) if of_a or not of_b else (of_b, writer_b)
        argument = call.arg_names[writer.argument] if call and writer else None
        if a and b:
            call, other = of_a or a[0], of_b or b[0]
            return Divergence(
                verdict=DIFFERENT_KERNEL, reason=_other_names(a, b), index_a=call.index,
                index_b=other.index, argument=argument, **about(call, other),
            )  # fmt: skip
        thread = "'s thread" if self.alignment.threads else ""
        if a:
            at = call or a[0]
            ends = gap.ends and f"the second run{thread} ends before it"
            reason = ends or f"the second run does not have this call; {_count(gap.a)} missing here"
            return Divergence(
                verdict=MISSING_CALL, reason=reason, index_a=at.index, argument=argument, **about(at)
            )
        at = call or b[0]
        ends = gap.ends and f"the first run{thread} ends before it"
        reason = ends or f"the first run does not have this call; {_count(gap.b)} extra here"
        return Divergence(verdict=EXTRA_CALL, reason=reason, index_b=at.index, argument=argument, **about(at))

    def _structural(self) -> Divergence:
        """No value differs that could be compared: the first place where the runs have other calls."""
        gap = self.alignment.gaps[0] if self.alignment.gaps else None
        pair = self._other_pair()
        note = "all values that can be compared agree"
        if gap is not None and (pair is None or gap.before <= pair):
            return self._gap_divergence(gap).with_notes(note)
        if pair is None:
            return Divergence()
        a, b = self.of_a.at(int(self.alignment.a[pair])), self.of_b.at(int(self.alignment.b[pair]))
        other = other_site(a, b)
        assert other is not None
        verdict, reason = other
        return Divergence(
            verdict=verdict, reason=reason, index_a=a.index, index_b=b.index, **about(a, b)
        ).with_notes(note)

    def _other_pair(self) -> int | None:
        """The first pair whose code or settings differ: one look for each pair of sites."""
        alignment = self.alignment
        sites_a, sites_b = alignment.columns_a.site[alignment.a], alignment.columns_b.site[alignment.b]
        wide = (int(sites_b.max()) + 1) if len(sites_b) else 1
        _, firsts = np.unique(sites_a * wide + sites_b, return_index=True)
        for pair in np.sort(firsts).tolist():
            a, b = self.of_a.at(int(alignment.a[pair])), self.of_b.at(int(alignment.b[pair]))
            if other_site(a, b) is not None:
                return int(pair)
        return None

    # -- counts ----------------------------------------------------------------------------------------

    def _compared(self) -> Compared:
        alignment = self.alignment
        return Compared(
            name_of(self.a, "first"), name_of(self.b, "second"), len(self.of_a), len(self.of_b),
            len(alignment), len(self.different), sum(len(gap.a) for gap in alignment.gaps),
            sum(len(gap.b) for gap in alignment.gaps), len(alignment.gaps),
        )  # fmt: skip

    def _notes(self, found: Divergence) -> Iterator[str]:
        others = len(self.alignment.gaps) + int(np.isin(self.alignment.tier, OTHER_CODE).sum())
        if others and found.verdict not in (MISSING_CALL, EXTRA_CALL, DIFFERENT_KERNEL, DIFFERENT_CONFIG):
            yield f"the runs also have different calls in {others} places"
        for run, which in ((self.a, "first"), (self.b, "second")):
            if isinstance(run, StoredRun) and run.is_cut_off:
                yield f"the recording of {name_of(run, which)} was not closed: its last calls are missing"


def _check_kinds(difference: PairDifference) -> None:
    for d in (*difference.inputs, *difference.outputs):
        if d.what == "values" and type(d.a) is not type(d.b):
            raise RunError(
                "the runs were recorded with different kinds of hashes; record both with the same settings"
            )


def _other_names(a: list[KernelCall], b: list[KernelCall]) -> str:
    def names(calls: list[Any]) -> str:
        shown = ", ".join(call.kernel_name for call in calls[:4])
        return shown + (f" and {len(calls) - 4} more" if len(calls) > 4 else "")

    return f"the runs have different kernels here: {names(a)} in the first, {names(b)} in the second"


def _count(calls: Sequence[int]) -> str:
    return "1 call is" if len(calls) == 1 else f"{len(calls)} calls are"
