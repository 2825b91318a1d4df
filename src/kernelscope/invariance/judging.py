"""Compares the rows of one run with those of the whole batch, launch by launch.

A result that differs gets the values of the whole batch, so every later kernel is judged on its own. A result
without rows (a sum over all of them) cannot be put right in this way: its memory is marked, and where it
changes the rows of a later result, the kernel that made it is to blame. Rows that were put into another order
are compared in that order, and marked: only where the order itself changes a later result, it is to blame.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .batches import Selection
from .comparing import Comparing, Match
from .flow import Code, Flow, Launched, Made, Outcome, Value
from .row_maps import Difference
from .row_orders import Mark, Order, Seen, is_real, movers, ordering, why_unknown

_OTHER_SHAPE = "its shape does not follow the number of rows"
_OTHER_PART = "the result that corresponds to it in the run with other rows is not known for certain"
_INDICES = "its result holds indices of rows"
_COMBINED = "its result combines rows and belongs to none of them"


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
        for made in sorted(inputs, key=lambda made: is_real(made.tensor)):  # indices first
            value = self._flow.values.get(made.key)
            if value is None or self._marks.get(made.storage):
                continue
            match = self._rows.compare(value, made)
            if match is not None and match.rows.dims and not match.found.is_gross:
                self._orders[made.storage] = match.order
                self._rows.know(match.order)
            if not is_real(made.tensor) and (match is None or match.found.differing or not match.rows.dims):
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
        seen = Seen(
            {self._orders[storage] for storage in launch.reads if storage in self._orders},
            {self._indices[storage] for storage in launch.reads if storage in self._indices},
            self._rows.own,
        )
        left: dict[int, dict[int, Mark]] = {storage: {} for storage in launch.writes}
        followed = {made.storage for made in launch.made}
        for storage in set(launch.writes) - launch.partly:
            self._orders.pop(storage, None)
            self._indices.pop(storage, None)
        for made in sorted(launch.made, key=lambda made: is_real(made.tensor)):  # indices first
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
        if self._blamed(launch, made, found, self._marks.get(storage, {}), Seen()):
            return None
        return self._outcome("variant", launch, made, found)

    # -- one result --------------------------------------------------------------------------------------

    def _judged(self, launch: Launched, made: Made, given: dict[int, Mark], seen: Seen) -> dict[int, Mark]:
        """What its memory is marked with from now on; the outcome goes to the kernel that it belongs to."""
        value = self._flow.values.get(made.key) if made.key is not None else None
        if value is None or value.maker is None:
            return given | {-self.launches: Mark(-1, launch.code.name, "unfollowed", made, code=launch.code)}
        maker = value.maker
        match = self._rows.compare(value, made, seen.possible)
        if not is_real(made.tensor) and (match is None or match.found.differing):
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
        if not made.is_certain and (found.is_gross or not is_real(made.tensor)):
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
        elif found.is_gross and (reason := why_unknown(given, in_own_order=not is_unknown_order)):
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
        return ordering(given, order) | {maker: mark}

    def _moved(
        self, launch: Launched, maker: int, made: Made, match: Match, given: dict[int, Mark]
    ) -> dict[int, Mark]:
        """The marks of a result that has the rows of the whole batch, in the same or in another order."""
        if not match.rows.dims:
            return {}
        if not match.order.places and is_real(made.tensor):  # no row of it was seen
            return {maker: self._mark(launch, maker, made, "unfollowed")}
        self._orders[made.storage] = match.order
        if match.order == self._rows.own:
            return {}
        self._rows.know(match.order)
        if self._rows.keeps_places(match.order):
            return {}
        mark = self._mark(launch, maker, made, "moved", order=match.order)
        return ordering(given, match.order) | {maker: mark}

    def _mark(
        self, launch: Launched, maker: int, made: Made, kind: str, found: Difference | None = None,
        order: Order | None = None,
    ) -> Mark:  # fmt: skip
        if kind == "place":
            self._flow.kernels[maker].numbers_rows = True
        return Mark(maker, launch.code.name, kind, made, found, launch.code, order)

    def _kind(self, launch: Launched, made: Made, match: Match) -> str:
        """Why it cannot be compared row by row; "": it can."""
        if not match.rows.dims:
            return "combined"
        return "" if is_real(made.tensor) and launch.has_inputs else "place"

    # -- who is to blame ---------------------------------------------------------------------------------

    def _blamed(
        self, launch: Launched, made: Made, found: Difference, given: dict[int, Mark], seen: Seen
    ) -> bool:
        """Whether an earlier kernel, whose result could not be put right, is to blame; it is then noted."""
        if any(mark.kind == "mixed" for mark in given.values()):
            return True  # it was noted when it was made
        suspects = [m for m in given.values() if m.is_combined and (found.is_gross or not m.counts)]
        if not suspects and self._reads_numbers(made, launch.code):
            suspects = list(self._combined.values())
        if not suspects and found.is_gross:
            suspects = movers(launch, given, seen)
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
        is_small = outcome.status != "same" and found is not None and not found.is_gross
        is_known = any(_has_same_rows(before, outcome) for before in kernel.outcomes)
        if outcome.tests != "size" and is_other and is_small and not is_known:
            # By now there is code for any number of rows: it differs, not where the rows are.
            outcome = replace(outcome, tests="size")
        kernel.outcomes.append(outcome)


def _has_same_rows(before: Outcome, outcome: Outcome) -> bool:
    """Whether this code, with the rows in another order, made what the whole batch's code makes."""
    if (before.status, before.tests, before.argument) != ("same", "position", outcome.argument):
        return False
    code, other = before.other, outcome.other
    return code is not None and other is not None and code.source_hash == other.source_hash
