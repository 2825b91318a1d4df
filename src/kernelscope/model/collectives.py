"""Which collective a call is: its group, its number there, and the ranks that it communicates with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelscope.events import Arg, Mark, Site

_GROUP = "process-group"  # kind of the mark that tells of one
_FUNCTIONAL = ("_c10d_functional.", "c10d_functional.", "_c10d_functional_autograd.")
_BETWEEN_TWO = ("send", "recv")
_OTHER = ("dst", "src")  # arguments with the place of the other rank in the group


class OneCall(Protocol):
    """What has to be known of a call."""

    @property
    def index(self) -> int: ...
    @property
    def kernel_name(self) -> str: ...
    @property
    def site(self) -> Site: ...
    @property
    def arguments(self) -> Sequence[Arg]: ...
    @property
    def arg_names(self) -> Sequence[str]: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def storages(self) -> dict[int, tuple[int, int, int]]: ...
    @property
    def begun_storages(self) -> dict[int, tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, a message between two ranks, or the wait for one."""

    group: str  # name of the process group
    operation: int | None  # number in its group, the same on all ranks; a message between two has none
    ranks: tuple[int, ...]  # of the group, if it is known
    peers: tuple[int, ...]  # the others of them; of a message, the one that it is exchanged with

    def __str__(self) -> str:
        what = "message" if self.operation is None else f"collective {self.operation}"
        ranks = f" with {_ranks(self.peers)}" if self.peers else ""
        return f"{what} of group {self.group}{ranks}"


def is_functional(name: str) -> bool:
    """Whether it only begins: collectives in compiled code return memory that is written later."""
    return name.startswith(_FUNCTIONAL)


def is_wait(name: str) -> bool:
    return is_functional(name) and "wait_tensor" in name


def is_between_two(name: str) -> bool:
    return any(word in name for word in _BETWEEN_TWO)


def communicates(site: Site) -> bool:
    return bool(site.collective) or site.kernel.name.startswith(("c10d.", *_FUNCTIONAL))


def groups_in(marks: Iterable[Mark]) -> dict[str, tuple[int, ...]]:
    """The ranks of each process group, by its name."""
    return dict(_group(mark.text) for mark in marks if mark.kind == _GROUP)


def collectives_in(
    calls: Iterable[OneCall], groups: dict[str, tuple[int, ...]], rank: int
) -> dict[int, Collective]:
    """By index of the call. `rank` is the one that made the calls."""
    counts: dict[str, int] = {}
    begun: dict[tuple[int, int], Collective] = {}  # by storage and offset: what is to be waited for
    found: dict[int, Collective] = {}
    for call in calls:
        name, group = call.kernel_name, call.site.collective
        if group:
            ranks = groups.get(group, ())
            if is_between_two(name):
                known = Collective(group, None, ranks, _other(call, ranks) or _without(ranks, rank))
            else:
                counts[group] = counts.get(group, -1) + 1
                known = Collective(group, counts[group], ranks, _without(ranks, rank))
            found[call.index] = known
            if is_functional(name):
                begun |= dict.fromkeys(_written(call), known)
        elif is_wait(name):
            places = ((storage, offset) for storage, _, offset in call.storages.values())
            awaited = next((begun[place] for place in places if place in begun), None)
            if awaited is not None:
                found[call.index] = awaited
    return found


def _written(call: OneCall) -> list[tuple[int, int]]:
    places = list(call.begun_storages.values())
    for i, (storage, _, offset) in call.storages.items():
        if call.arguments[i].role in ("out", "inout"):
            places.append((storage, offset))
    return places


def _other(call: OneCall, ranks: Sequence[int]) -> tuple[int, ...]:
    values = dict(zip(call.arg_names, call.args, strict=False))
    place = next((values[name] for name in _OTHER if isinstance(values.get(name), int)), -1)
    return (ranks[place],) if 0 <= place < len(ranks) else ()


def _without(ranks: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(each for each in ranks if each != rank)


def _group(text: str) -> tuple[str, tuple[int, ...]]:
    try:
        given: Any = json.loads(text)
        return str(given["name"]), tuple(int(rank) for rank in given["ranks"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "", ()


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return f"{len(ranks)} ranks from {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
