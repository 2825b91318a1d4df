"""A result as text: what is wrong and what to do, how much was judged, and what could not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kernelscope.shadowing.counts import Counts
from kernelscope.shadowing.culprit import Culprit, Failure, Padded, Unchecked
from kernelscope.text.amounts import counted

from .culprit_text import culprit_lines, headline

_SHOWN = 5


class Found(Protocol):
    """What a result has to say."""

    counts: Counts
    unshadowed: list[str]
    notes: list[str]
    padded: dict[Padded, None]
    command: Sequence[str]

    @property
    def culprits(self) -> list[Culprit]: ...
    @property
    def unchecked(self) -> list[Unchecked]: ...
    @property
    def failures(self) -> list[Failure]: ...
    @property
    def problem(self) -> str: ...


def result_lines(found: Found, *, verbose: bool = False) -> Iterator[str]:
    """In the order in which a person needs them."""
    most = None if verbose else _SHOWN
    if culprits := found.culprits:
        yield from culprit_lines(culprits[0], found.command, verbose=verbose)
        if more := culprits[1:]:
            yield f"and {len(more)} more, each checked with the inputs it was given:"
            for each in more[:most]:
                yield from (f"  {line}" for line in _further(each, found.command, verbose=verbose))
    elif found.problem:
        yield f"Inconclusive: {found.problem}."
    else:
        yield _nothing_wrong(found.counts)
    yield str(found.counts)
    if found.counts.narrow:
        names = ", ".join(sorted(found.counts.narrow))
        yield f"Checked in their own dtype, because they have no float64 kernel: {names}."
    yield from _failure_lines(found.failures, verbose=verbose, is_known=not culprits)
    yield from _listed("Not checked", [str(each) for each in found.unchecked], most)
    yield from (f"Not shadowed: {each}" for each in found.unshadowed[:most])
    yield from map(str, [*found.padded][:most])
    yield from found.notes


def _nothing_wrong(counts: Counts) -> str:
    """What an exit status of 0 means for this program."""
    kernels = "no kernel has more error than rounding can explain"
    if not counts.regions:
        return f"Nothing wrong: {kernels}."
    share = "" if counts.shares["functions"] == 1 else "as far as it was compared, "
    does = "what the uncompiled one does"
    if counts.traced_regions >= counts.regions:
        does = "what Dynamo traced"
    elif counts.traced_regions:
        does += f", or in {counted(counts.traced_regions, 'function')} what Dynamo traced"
    whole = f"{share}the compiled program computes {does}"
    if not counts.arbitrary:
        return f"Nothing wrong: {whole}, and {kernels}."
    left_out = f"{counted(counts.arbitrary, 'result')} affected by random numbers or uninitialised memory"
    return f"Nothing wrong: {whole}, and {kernels}. Left out of that comparison: {left_out}."


def failed(failures: Sequence[Failure]) -> str:
    """Our own failures in one sentence."""
    times = sum(each.times for each in failures)
    often = f"{times} times, first at" if times > 1 else "at"
    return f"kernelscope itself failed {often} {failures[0].where}: {failures[0].error}"


def _further(culprit: Culprit, command: Sequence[str], *, verbose: bool) -> Iterator[str]:
    if verbose:
        yield from culprit_lines(culprit, command, verbose=True)
    else:
        yield headline(culprit)


def _failure_lines(failures: Sequence[Failure], *, verbose: bool, is_known: bool) -> Iterator[str]:
    if not failures:
        return
    if not is_known:
        yield f"{failed(failures)}."
    if verbose:
        for each in failures:
            yield f"  {each}"
            yield from (f"    {line}" for line in each.traceback.splitlines())
    else:
        yield "This is a bug of kernelscope. See kernelscope shadow --verbose, or result.details()."


def _listed(title: str, lines: Sequence[str], most: int | None) -> Iterator[str]:
    if lines:
        yield f"{title} ({len(lines)}):"
        yield from (f"  {line}" for line in lines[:most])
        if most is not None and len(lines) > most:
            yield f"  and {len(lines) - most} more"
