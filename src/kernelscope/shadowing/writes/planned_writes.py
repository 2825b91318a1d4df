"""Finds buffers that changed without a declared write, in graphs whose first execution had none.

A wrapper executes the same launches each time. So it is known which variables the next launch writes to,
and which are gone by then: these are digested now, and all others later. What is compared is the same
as in the first execution, and all of every buffer, but only once between two writes and before each read.
Nobody waits: the digests are read when the graph is over. A change is then known to have happened while
one of several launches ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from .digests import DigestQueue
from .foreign_writes import Change, Watch, in_memory_order, is_readable, may_change, places_in, storage_of

Launched = tuple[str, int]  # which kernel, in which line


@dataclass(frozen=True, slots=True)
class Plan:
    """Of a graph."""

    launched: Sequence[Launched]
    endings: Sequence[Collection[str]]  # by launch: what the next one writes to, or is gone by then

    @classmethod
    def of(cls, watch: Watch, launched: Sequence[Launched]) -> Plan | None:
        """None: something was wrong, or not all of it was seen."""
        is_whole = watch.is_clean and launched and len(watch.endings) == len(launched)
        return cls(tuple(launched), [frozenset(names) for names in watch.endings]) if is_whole else None


@dataclass(slots=True)
class _Mark:
    storage: int
    digest: int  # its number in the queue
    launch: int  # after which one


class _Compared(NamedTuple):
    change: Change  # if these differ
    before: int
    now: int
    launch: int  # before which, or after which, it was digested


@dataclass(slots=True)
class PlannedWatch:
    """The variables of one graph call."""

    plan: Plan
    marks: dict[str, _Mark] = field(default_factory=dict)
    follows_plan: bool = True  # so far
    _done: int = 0  # launches
    _queue: DigestQueue = field(default_factory=DigestQueue)
    _compared: list[_Compared] = field(default_factory=list)

    def before(
        self,
        alive: Mapping[str, torch.Tensor],
        reads: Collection[str],
        written: Iterable[torch.Tensor],
        launch: int,
        launched: Launched,
    ) -> None:
        """Note those that are not watched yet; those that are read may not have changed."""
        planned = self.plan.launched
        self.follows_plan &= self._done < len(planned) and planned[self._done] == launched
        memories = {storage_of(tensor) for tensor in written}
        known, last = self.marks, self._done - 1
        # Those in written memory are checked as well, where the plan did not know: inputs may share memory.
        checked = [
            name
            for name, tensor in alive.items()
            if (mark := known.get(name)) is not None
            and mark.storage == storage_of(tensor)
            and (name in reads or (mark.storage in memories and not self._ends(name, last)))
        ]
        new = [name for name, tensor in alive.items() if name not in known and is_readable(tensor)]
        digests = self._digest(alive[name] for name in (*checked, *new))
        for name, digest in zip(checked, digests, strict=False):
            suspects = range(known[name].launch + 1, launch)
            self._compare(Change(name, suspects, is_read=name in reads), digest, launch)
            known[name].launch = launch - 1
        for name, digest in zip(new, digests[len(checked) :], strict=True):
            known[name] = _Mark(storage_of(alive[name]), digest, launch - 1)

    def after(self, alive: Mapping[str, torch.Tensor], written: Iterable[torch.Tensor], launch: int) -> None:
        """Those that this launch writes to are noted again; those that end here may not have changed."""
        places, this = places_in(written), self._done
        self._done += 1
        own: list[str] = []
        ends: list[str] = []
        for name, mark in list(self.marks.items()):
            tensor = alive.get(name)
            if tensor is None or storage_of(tensor) != mark.storage:
                self.follows_plan &= self._ends(name, this - 1)
                del self.marks[name]
            elif mark.storage in places and may_change(tensor, places[mark.storage]):
                own.append(name)
            elif self._ends(name, this):
                ends.append(name)
        digests = self._digest(alive[name] for name in (*own, *ends))
        for name, digest in zip(own, digests, strict=False):
            self.marks[name].digest = digest
            self.marks[name].launch = launch
        for name, digest in zip(ends, digests[len(own) :], strict=True):
            suspects = range(self.marks[name].launch + 1, launch + 1)
            self._compare(Change(name, suspects, is_read=False), digest, launch)
            self.marks[name].launch = launch

    def changes(self) -> list[tuple[Change, int]]:
        """The graph is over: what changed, and the launch at which that was found."""
        value, found = self._queue.value, self._compared
        self._compared = []
        return [(each.change, each.launch) for each in found if value(each.before) != value(each.now)]

    @property
    def is_whole(self) -> bool:
        """The plan was right: no variable was gone before it was compared."""
        return self.follows_plan and self._done == len(self.plan.launched)

    def _ends(self, name: str, launch: int) -> bool:
        """Whether this is the last chance to look at a variable; all of them end with the last launch."""
        if not self.follows_plan or launch >= len(self.plan.launched) - 1:
            return True
        return launch >= 0 and name in self.plan.endings[launch]

    def _digest(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        found = [in_memory_order(tensor) for tensor in tensors]
        return self._queue.put(found) if found else []

    def _compare(self, change: Change, digest: int, launch: int) -> None:
        """With what the variable held before; from now on with what it holds now."""
        mark = self.marks[change.name]
        self._compared.append(_Compared(change, mark.digest, digest, launch))
        mark.digest = digest
