"""Random number generators that had the same state on several ranks after the first step, and then not.

It is not known which ranks must draw the same numbers (those of tensor parallelism often, those of data
parallelism seldom), so what is found here is a note.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping

from kernelscope.analysis.ranks.rank import Rank

States = dict[int, dict[str, str]]  # by number of steps: by device
_KIND = "generators"
_DEVICES = ("cpu", "cuda")


def generator_notes(ranks: Mapping[int, States]) -> Iterator[str]:
    """`ranks` has what each recorded, see `states_of`."""
    for device in _DEVICES:
        known = {
            rank: {step: by_device[device] for step, by_device in states.items() if device in by_device}
            for rank, states in ranks.items()
        }
        yield from _of_device(device, known)


def _of_device(device: str, known: dict[int, dict[int, str]]) -> Iterator[str]:
    steps = sorted(set.intersection(*(set(each) for each in known.values())))
    if not steps:
        return
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, states in known.items():
        alike[states[steps[0]]].append(rank)
    for ranks in alike.values():
        parted = [step for step in steps if len({known[rank][step] for rank in ranks}) > 1]
        if parted:
            which = f"({device}) of ranks {', '.join(map(str, ranks))}"
            yield (
                f"the random number generators {which} had the same state after step {steps[0] - 1}, but "
                f"different states after step {parted[0] - 1}: if these ranks must draw the same numbers, "
                "one drew more than another, or its generator was set"
            )


def states_of(rank: Rank) -> States:
    found: States = {}
    for mark in rank.run.marks:
        if mark.kind == _KIND:
            try:
                given = json.loads(mark.text)
                states = {str(name): str(state) for name, state in given["states"].items()}
                found[int(given["step"])] = states
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                continue
    return found
