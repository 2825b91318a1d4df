"""Which thread of one run is which thread of another; the numbers of threads differ from run to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kernelscope.store.columns import Columns, Ints, mixed

from .sequences import Codes

_MOST_COMPARED = 64  # threads of each run that are compared one with another

Pair = tuple[int | None, int | None]  # threads; None where the other run does not have it


@dataclass(frozen=True)
class Work:
    """What the threads of a run did: for each call its thread, its kernel, and its kernel with its values."""

    threads: tuple[int, ...]  # in order of their first call
    main: int  # in a run of an older version, which does not know it, the thread of the first call
    knows_main: bool
    thread: Ints
    kernels: Codes
    values: Codes


def work_of(columns: Columns, kernels: Codes, main: int) -> Work:
    with np.errstate(over="ignore"):
        values = mixed(columns.left) + mixed(kernels.astype(np.uint64) + np.uint64(1))
    first = main or columns.threads[0]
    return Work(columns.threads, first, bool(main), columns.thread, kernels, values.view(np.int64))


def matched_threads(a: Work, b: Work) -> list[Pair]:
    """The main threads; then threads with the same values, the same kernels, or the most kernels in common.

    Among equals the order of their first calls decides. Threads without a partner come last.
    """
    left_a, left_b = list(a.threads), list(b.threads)
    found: list[tuple[int, int]] = []

    def take(pairs: Iterable[tuple[int, int]]) -> None:
        for one, other in pairs:
            if one in left_a and other in left_b:
                left_a.remove(one)
                left_b.remove(other)
                found.append((one, other))

    take([(a.main, b.main)])
    take(_most_in_common(a, b, left_a, left_b))
    take(_same_sequence(a, b, left_a, left_b))
    take(_same_kernels(a, b, left_a, left_b))
    return [*found, *((t, None) for t in left_a), *((None, t) for t in left_b)]


def _most_in_common(a: Work, b: Work, left_a: list[int], left_b: list[int]) -> list[tuple[int, int]]:
    """By the number of calls that only these two threads have: same kernel, same values."""
    keys_a, threads_a = _only_once(a, left_a)
    keys_b, threads_b = _only_once(b, left_b)
    _, at_a, at_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    counts = Counter(zip(threads_a[at_a].tolist(), threads_b[at_b].tolist(), strict=True))
    return _best_first(counts, left_a, left_b)


def _only_once(work: Work, threads: list[int]) -> tuple[Codes, Ints]:
    """Calls, by value, that one of these threads made and no other did; and which."""
    here = np.isin(work.thread, threads)
    values, thread = work.values[here], work.thread[here]
    order = np.lexsort((thread, values))
    values, thread = values[order], thread[order]
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.zeros(0, np.int64)
    ends = np.r_[starts[1:], len(values)] - 1 if len(starts) else starts
    alone = thread[starts] == thread[ends]
    return values[starts[alone]], thread[starts[alone]]


def _same_sequence(a: Work, b: Work, left_a: list[int], left_b: list[int]) -> list[tuple[int, int]]:
    """Threads that ran the same kernels in the same order."""
    waiting: dict[bytes, list[int]] = {}
    for thread in left_b:
        waiting.setdefault(_sequence(b, thread), []).append(thread)
    found = [(thread, waiting.get(_sequence(a, thread))) for thread in left_a]
    return [(thread, others.pop(0)) for thread, others in found if others]


def _sequence(work: Work, thread: int) -> bytes:
    found: bytes = work.kernels[work.thread == thread].tobytes()
    return found


def _same_kernels(a: Work, b: Work, left_a: list[int], left_b: list[int]) -> list[tuple[int, int]]:
    """By the number of calls of the same kernels."""
    of_a = {t: Counter(a.kernels[a.thread == t].tolist()) for t in left_a[:_MOST_COMPARED]}
    of_b = {t: Counter(b.kernels[b.thread == t].tolist()) for t in left_b[:_MOST_COMPARED]}
    common = {(x, y): (of_a[x] & of_b[y]).total() for x in of_a for y in of_b}
    return _best_first({pair: count for pair, count in common.items() if count}, left_a, left_b)


def _best_first(
    counts: dict[tuple[int, int], int], left_a: list[int], left_b: list[int]
) -> list[tuple[int, int]]:
    """Most calls in common first; then those whose places in the order of first calls are nearest."""
    at_a, at_b = ({thread: n for n, thread in enumerate(left)} for left in (left_a, left_b))
    return sorted(counts, key=lambda p: (-counts[p], abs(at_a[p[0]] - at_b[p[1]]), at_a[p[0]]))
