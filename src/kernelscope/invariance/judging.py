"""Compares the rows of one run with those of the whole batch, launch by launch.

A result that differs gets the values of the whole batch, so every later kernel is judged on its own. A result
without rows (a sum over all of them) cannot be put right in this way: its memory is marked, and where it
changes the rows of a later result, the kernel that made it is to blame. Rows that were put into another order
are compared in that order, and marked: only where the order itself changes a later result, it is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from .batches import Selection
from .comparing import Comparing, Match
from .flow import Code, Flow, Launched, Made, Outcome, Value
from .orders import Order
from .row_maps import Difference

_OTHER_SHAPE = "its shape does not follow the number of rows"
_OTHER_PART = "what corresponds to it with other rows is not known for certain"
_INDICES = "its result holds indices of rows"
_COMBINED = "its result combines rows and belongs to none of them"
_OTHER_INDICES = "it was given indices that other code computes with other rows"
_EQUAL_ROWS = "it was given equal rows in another order, and which of them is which is not known"


@dataclass(frozen=True, slots=True)
class Mark:
    """Memory whose contents cannot be compared row by row, or that holds rows in another order."""

    maker: int  # in the run of the whole batch; -1: a kernel that it does not have
    name: str
    kind: str  # combined | mixed | moved | place | unfollowed
    made: Made | None = None
    found: Difference | None = None
    code: Code | None = None
    order: Order | None = None  # in which it has the rows, or that its indices make; None: not known

    @property
    def is_combined(self) -> bool:
        """It depends on other rows, whatever it is used for."""
        return self.kind == "combined"

    @property
    def is_index(self) -> bool:
        return self.kind == "place"

    @property
    def moves_rows(self) -> bool:
        return self.kind in ("moved", "place")

    @property
    def counts(self) -> bool:
        """An index or a number of rows: another one changes a row by more than rounding."""
        return self.made is not None and not _is_real(self.made.tensor)


@dataclass(frozen=True, slots=True)
class _Seen:
    """In which orders a kernel reads rows, and which orders the indices make that it reads."""

    orders: set[Order] = field(default_factory=set)
    indices: set[Order | None] = field(default_factory=set)
    own: Order | None = None

    @property
    def is_uncertain(self) -> bool:
        """Whether it is not known in which order it leaves rows."""
        return bool(self.indices) or len(self.orders) > 1

    @property
    def possible(self) -> set[Order]:
        """The orders in which it may leave rows."""
        if not self.indices:
            return self.orders if len(self.orders) == 1 else set()
        if self.own is not None and self.orders - {self.own}:  # rows in another order: it puts them back
            return {self.own}
        return self.orders | {order for order in self.indices if order is not None}


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


class Judge:
    """Judges one run."""

    def __init__(self, flow: Flow, selection: Selection) -> None:
        self._flow, self._selection = flow, selection
        self._rows = Comparing(flow.size, selection)
        self._marks: dict[int, dict[int, Mark]] = {}  # by storage, by maker
        self._orders: dict[int, Order] = {}  # by storage: of the rows in it
        self._indices: dict[int, Order | None] = {}  # by storage: the order that the indices in it make
        self._combined: dict[int, Mark] = {}  # all so far, by maker
        self._numbers: set[float] = set()  # in the kernels of this run
        self.outside: list[str] = []  # what differed before a graph was entered
        self.launches = 0

    # -- what the follower calls -------------------------------------------------------------------------

    def entered(self, inputs: list[Made]) -> None:
        for made in sorted(inputs, key=lambda made: _is_real(made.tensor)):  # indices first
            value = self._flow.values.get(made.key)
            if value is None or self._marks.get(made.storage):
                continue
            match = self._rows.compare(value, made)
            if match is not None and match.rows.dims and not match.found.is_gross:
                self._orders[made.storage] = match.order
                self._rows.know(match.order)
            if not _is_real(made.tensor) and (match is None or match.found.differing or not match.rows.dims):
                order = self._rows.indices(value, made)
                if order is not None:
                    mark = Mark(-1, made.argument, "place", made, order=order)
                    self._marks[made.storage] = {-1 - len(self._marks): mark}
                    self._indices[made.storage] = order
                    continue
            if match is None or not match.found.differing:
                continue
            if match.rows.dims or self._selection.tests == "repeat":
                self.outside.append(made.argument)
                self._rows.put_right(value, made, match)
            elif made.tensor.is_floating_point():  # a number that the program has read from a tensor
                self._marks[made.storage] = dict(self._combined)
                self.outside += [] if self._combined else [made.argument]

    def launched(self, launch: Launched) -> None:
        self.launches += 1
        self._numbers |= launch.code.numbers
        given: dict[int, Mark] = {}
        for storage in launch.reads:
            given |= self._marks.get(storage, {})
        seen = _Seen(
            {self._orders[storage] for storage in launch.reads if storage in self._orders},
            {self._indices[storage] for storage in launch.reads if storage in self._indices},
            self._rows.own,
        )
        left: dict[int, dict[int, Mark]] = {storage: {} for storage in launch.writes}
        followed = {made.storage for made in launch.made}
        for storage in set(launch.writes) - launch.partly:
            self._orders.pop(storage, None)
            self._indices.pop(storage, None)
        for made in sorted(launch.made, key=lambda made: _is_real(made.tensor)):  # indices first
            left.setdefault(made.storage, {}).update(self._judged(launch, made, given, seen))
        for storage in set(launch.writes) - followed:  # pieces of a result, scratch memory
            left[storage] = given | {
                -self.launches: Mark(-1, launch.code.name, "unfollowed", code=launch.code)
            }
        for storage, marks in left.items():
            before = self._marks.get(storage, {}) if storage in launch.partly else {}
            self._marks[storage] = before | marks

    def result(self, name: str, whole: Value, part: torch.Tensor, storage: int = -1) -> Outcome | None:
        """What the program returns, after all that can be put right was; None: it has the same rows."""
        made, launch = Made(name, True, part, part, storage, name), Launched(Code(name, "result"))
        # In another order only where there are as many rows as their contents say.
        match = self._rows.directly(whole, made) or self._rows.compare(whole, made)
        if match is None:
            return self._outcome("unfollowed", launch, made, reason=_OTHER_SHAPE)
        found = match.found
        if self._selection.tests == "contents":
            is_moved = match.order != self._rows.own
            whole.met |= set(match.order.kept if is_moved else range(max(part.shape, default=0)))
        if not found.differing or (not match.rows.dims and self._selection.tests != "repeat"):
            return None
        if self._blamed(launch, made, found, self._marks.get(storage, {}), _Seen()):
            return None
        return self._outcome("variant", launch, made, found)

    # -- one result --------------------------------------------------------------------------------------

    def _judged(self, launch: Launched, made: Made, given: dict[int, Mark], seen: _Seen) -> dict[int, Mark]:
        """What its memory is marked with from now on; the outcome goes to the kernel that it belongs to."""
        value = self._flow.values.get(made.key) if made.key is not None else None
        if value is None or value.maker is None:
            return given | {-self.launches: Mark(-1, launch.code.name, "unfollowed", made, code=launch.code)}
        maker = value.maker
        match = self._rows.compare(value, made, seen.possible)
        if not _is_real(made.tensor) and (match is None or match.found.differing):
            marks = self._judged_indices(launch, maker, value, made, given, match)
            if marks is not None:
                return marks
        if match is None:
            self._note(maker, self._outcome("unfollowed", launch, made, reason=_OTHER_SHAPE))
            return given | {maker: self._mark(launch, maker, made, "unfollowed")}
        found = match.found
        if not found.differing:
            self._note(maker, self._outcome("same", launch, made, found))
            return self._moved(launch, maker, made, match, given)
        if self._selection.tests == "repeat" and not launch.is_random:
            self._note(maker, self._outcome("variant", launch, made, found))
            self._rows.put_right(value, made, match)
            return {}
        if launch.is_random:
            self._note(maker, self._outcome("unfollowed", launch, made, reason="it draws random numbers"))
            if match.rows.dims:
                self._rows.put_right(value, made, match)
            return {}
        if not made.is_certain and (found.is_gross or not _is_real(made.tensor)):
            self._note(maker, self._outcome("unfollowed", launch, made, reason=_OTHER_PART))
            return given | {maker: self._mark(launch, maker, made, "unfollowed")}
        kind = self._kind(launch, made, match)
        if kind:
            reason = _COMBINED if kind == "combined" else _INDICES
            status = "combined" if kind == "combined" else "unfollowed"
            self._note(maker, self._outcome(status, launch, made, found, reason=reason))
            mark = self._mark(launch, maker, made, kind, found)
            if kind == "place":
                self._indices[made.storage] = None
            self._combined |= {maker: mark} if kind == "combined" else {}
            return given | {maker: mark}
        # It cannot be seen from rows that differ: other code may have put them back.
        is_unknown_order = found.is_gross and match.order != self._rows.own
        if self._blamed(launch, made, found, given, seen):
            self._note(maker, self._outcome("handed", launch, made, found))
        elif found.is_gross and (reason := _why_unknown(given)):
            self._note(maker, self._outcome("unfollowed", launch, made, found, reason=reason))
            return given | {maker: self._mark(launch, maker, made, "unfollowed")}
        else:
            lost = [m for m in given.values() if m.kind == "unfollowed" and not m.counts]  # an order is exact
            outcome = self._outcome("variant", launch, made, found, joined=tuple({m.name: 0 for m in lost}))
            if is_unknown_order:  # so how much its rows differ is not known either
                outcome = replace(outcome, argument="", difference=replace(found, factor=None))
            if not found.is_gross and match.order.whole != match.order.part:
                # It had another number of rows, whatever decided that.
                outcome = replace(outcome, tests="size")
            self._note(maker, outcome)
        if is_unknown_order or (found.is_gross and seen.is_uncertain):
            return {maker: self._mark(launch, maker, made, "mixed", found)}
        self._rows.put_right(value, made, match)
        return self._moved(launch, maker, made, match, given)

    def _judged_indices(
        self, launch: Launched, maker: int, value: Value, made: Made, given: dict[int, Mark],
        match: Match | None,
    ) -> dict[int, Mark] | None:  # fmt: skip
        """Of indices of rows; None: it does not hold any."""
        if self._selection.tests == "repeat" or launch.is_random or not made.is_certain:
            return None
        if match is not None and not match.rows.dims:
            return None
        order = self._rows.indices(value, made)
        if order is None:
            return None
        found = match.found if match is not None else None
        self._note(maker, self._outcome("same", launch, made, found))
        mark = self._mark(launch, maker, made, "place", found, order)
        self._indices[made.storage] = order
        return {key: each for key, each in given.items() if each.moves_rows} | {maker: mark}

    def _moved(
        self, launch: Launched, maker: int, made: Made, match: Match, given: dict[int, Mark]
    ) -> dict[int, Mark]:
        """The marks of a result that has the rows of the whole batch, in the same or in another order."""
        if not match.rows.dims:
            return {}
        self._orders[made.storage] = match.order
        if match.order == self._rows.own:
            return {}
        self._rows.know(match.order)
        mark = self._mark(launch, maker, made, "moved", order=match.order)
        return {key: each for key, each in given.items() if each.moves_rows} | {maker: mark}

    def _mark(
        self, launch: Launched, maker: int, made: Made, kind: str, found: Difference | None = None,
        order: Order | None = None,
    ) -> Mark:  # fmt: skip
        return Mark(maker, launch.code.name, kind, made, found, launch.code, order)

    def _kind(self, launch: Launched, made: Made, match: Match) -> str:
        """Why it cannot be compared row by row; "": it can."""
        if not match.rows.dims:
            return "combined"
        return "" if _is_real(made.tensor) and launch.has_inputs else "place"

    # -- who is to blame ---------------------------------------------------------------------------------

    def _blamed(
        self, launch: Launched, made: Made, found: Difference, given: dict[int, Mark], seen: _Seen
    ) -> bool:
        """Whether an earlier kernel, whose result could not be put right, is to blame; it is then noted."""
        if any(mark.kind == "mixed" for mark in given.values()):
            return True  # it was noted when it was made
        suspects = [m for m in given.values() if m.is_combined and (found.is_gross or not m.counts)]
        if not suspects and self._reads_numbers(made, launch.code):
            suspects = list(self._combined.values())
        if not suspects and found.is_gross:
            suspects = _movers(launch, given, seen)
        suspects = [mark for mark in suspects if mark.maker >= 0]
        if not suspects:
            return False
        first = min(suspects, key=lambda mark: mark.maker)
        assert first.made is not None
        argument, apart = first.made.argument, first.found or found
        if first.moves_rows:  # its own result is not wrong: what differs is what was made of it
            is_result = launch.code.kind == "result"
            argument, apart = made.argument if is_result else f"{launch.code.name} {made.argument}", found
        outcome = Outcome(
            self._selection.name, self._selection.tests, "variant", "", argument, apart,
            first.code, (), launch.code.name, first.moves_rows,
        )  # fmt: skip
        self._note(first.maker, outcome)
        return True

    def _reads_numbers(self, made: Made, code: Code) -> bool:
        """Whether it computes with a number that is another one in the whole batch: the program read it."""
        value = self._flow.values.get(made.key) if made.key is not None else None
        whole = self._flow.kernels[value.maker].code.numbers if value and value.maker is not None else set()
        size = self._selection.size
        changed = (code.numbers - self._flow.numbers) | (whole - self._numbers)
        return any(not (n * size).is_integer() and not (n and (1 / n).is_integer()) for n in changed)

    def _outcome(
        self, status: str, launch: Launched, made: Made, found: Difference | None = None, *,
        reason: str = "", joined: tuple[str, ...] = (),
    ) -> Outcome:  # fmt: skip
        chosen = self._selection
        return Outcome(chosen.name, chosen.tests, status, reason, made.argument, found, launch.code, joined)

    def _note(self, maker: int, outcome: Outcome) -> None:
        kernel, found, other = self._flow.kernels[maker], outcome.difference, outcome.other
        is_other = other is not None and other.source_hash != kernel.code.source_hash
        if outcome.tests != "size" and is_other and found is not None and not found.is_gross:
            # By now there is code for any number of rows: it differs, not where the rows are.
            outcome = replace(outcome, tests="size")
        kernel.outcomes.append(outcome)


def _why_unknown(given: dict[int, Mark]) -> str:
    """Why it is not known in which order a kernel was given rows; "": it is."""
    if any(mark.kind == "unfollowed" and mark.counts for mark in given.values()):
        return _OTHER_INDICES
    return _EQUAL_ROWS if any(mark.order and mark.order.is_ambiguous for mark in given.values()) else ""


def _movers(launch: Launched, given: dict[int, Mark], seen: _Seen) -> list[Mark]:
    """Kernels that gave rows another place, where that explains rows that differ.

    A kernel that reads rows in one order, or indices with them, has combined them itself.
    """
    if any(mark.kind == "unfollowed" and mark.counts for mark in given.values()):
        return []
    unknown = [mark for mark in given.values() if mark.is_index and mark.order is None]
    if unknown:
        return unknown
    moving = [mark for mark in given.values() if mark.moves_rows]
    if launch.code.kind == "result" or (len(seen.orders) > 1 and not seen.indices):
        return moving
    return []
