"""The search itself, on numbers alone: which of n switches does a failure need?

A search is a generator. It yields the switches that are on, and is sent whether the trial failed. The same
answers lead to the same trials, so a search can continue from a journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

On = frozenset[int]
Search = Generator[On, bool, "Found"]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Each of `causes` is a set of switches that fail together, with all others off; without any one of them
    they do not. Two causes are independent: switching one off leaves the other.
    """

    causes: tuple[tuple[int, ...], ...] = ()
    fails_with_all: bool = True
    fails_without: bool = False  # it fails with every switch off

    def __bool__(self) -> bool:
        return bool(self.causes)

    @property
    def cure(self) -> tuple[int, ...]:
        """One of each cause: switch these off, and it passes."""
        return tuple(cause[-1] for cause in self.causes)


def find_cause(switches: Sequence[int], *, probe: bool = False, guess: Sequence[int] = ()) -> Search:
    """Find one cause among the switches: one that fails alone in at most ⌈log₂ n⌉ + 2 trials.

    The smallest failing prefix ends with a switch that the failure needs. With that one always on, the
    search is repeated below it, until those that were found fail alone.

    probe  first try with all of them off: worth one trial if that may fail too
    guess  try these alone first
    """
    order = list(switches)
    if not (yield frozenset(order)):
        return Found(fails_with_all=False)
    if not order:
        return Found(fails_without=True)
    if probe and (yield frozenset()):
        return Found(fails_without=True)
    if guess and len(order) > len(guess) and (yield frozenset(guess)):
        order = [each for each in order if each in set(guess)]
    needed: list[int] = []
    tried_none = probe
    while order:
        length = yield from _shortest_prefix(order, needed)
        needed.append(order[length - 1])
        order = order[: length - 1]
        if not order:
            break  # that prefix was the switch alone
        if (yield frozenset(needed)):
            return Found((tuple(sorted(needed)),))
    if len(needed) == 1 and not tried_none and (yield frozenset()):
        return Found(fails_without=True)
    return Found((tuple(sorted(needed)),))


def _shortest_prefix(order: Sequence[int], needed: Sequence[int]) -> Generator[On, bool, int]:
    """How many from the front it takes to fail together with `needed`; all of them do."""
    passes, fails = 0, len(order)
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if (yield frozenset(order[:middle]) | frozenset(needed)):
            fails = middle
        else:
            passes = middle
    return fails


def find_causes(
    switches: Sequence[int], *, probe: bool = False, guess: Sequence[int] = (), most: int = 8
) -> Search:
    """All causes that are independent of each other; the last trial shows that `cure` helps."""
    every, causes = list(switches), list[tuple[int, ...]]()
    while True:
        cured = {cause[-1] for cause in causes}
        left = [each for each in every if each not in cured]
        found = yield from find_cause(left, probe=probe and not causes, guess=guess if not causes else ())
        if not found.fails_with_all:
            return Found(tuple(causes), fails_with_all=bool(causes))
        if found.fails_without or len(causes) == most:
            return Found(fails_without=True)
        causes += found.causes


def drive(
    search: Generator[On, bool, _Result], fails: dict[On, bool] | None, ask: Callable[[On], bool]
) -> _Result:
    """Run a search; `ask(on)` returns whether it fails, and is called once for each set."""
    known = {} if fails is None else fails
    try:
        on = next(search)
        while True:
            if on not in known:
                known[on] = ask(on)
            on = search.send(known[on])
    except StopIteration as end:
        result: _Result = end.value
        return result


def upcoming(make: Callable[[], Search], known: Mapping[On, bool], most: int) -> list[On]:
    """The trials that a search may make next, the nearest first, whatever the answers to earlier ones are."""
    found: list[On] = []
    ways: deque[dict[On, bool]] = deque([dict(known)])
    while ways and len(found) < most:
        way = ways.popleft()
        on = _first_unknown(make(), way)
        if on is None:
            continue
        if on not in found:
            found.append(on)
        ways += ({**way, on: True}, {**way, on: False})
    return found


def _first_unknown(search: Search, known: Mapping[On, bool]) -> On | None:
    try:
        on = next(search)
        while on in known:
            on = search.send(known[on])
    except StopIteration:
        return None
    return on
