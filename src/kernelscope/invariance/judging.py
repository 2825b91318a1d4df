"""Compares the rows of one run with those of the whole batch, launch by launch.

A result that differs gets the values of the whole batch, so every later kernel is judged on its own. A result
without rows (a sum over all of them) cannot be put right in this way: its memory is marked, and where it
changes the rows of a later result, the kernel that made it is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernelscope.fingerprint.torch_bits import quiet

from .batches import Selection
from .flow import Code, Flow, Launched, Made, Outcome, Value
from .row_maps import NO_ROWS, Difference, RowMap, candidates, difference, reordered, same

_OTHER_SHAPE = "its shape does not follow the number of rows"
_NOT_KEPT = "with other rows there is no result that corresponds to it"
_OTHER_PART = "what corresponds to it with other rows is not known for certain"


@dataclass(frozen=True, slots=True)
class Mark:
    """Memory whose contents cannot be compared row by row."""

    maker: int  # in the run of the whole batch; -1: a kernel that it does not have
    name: str
    kind: str  # combined | close | reordered | place | unfollowed
    made: Made | None = None
    found: Difference | None = None
    code: Code | None = None

    @property
    def is_suspect(self) -> bool:
        """It depends on other rows, whatever it is used for."""
        return self.kind in ("combined", "close")

    @property
    def moves_rows(self) -> bool:
        return self.kind in ("reordered", "place")


class Judge:
    """Judges one run."""

    def __init__(self, flow: Flow, selection: Selection) -> None:
        self._flow, self._selection = flow, selection
        self._marks: dict[int, dict[int, Mark]] = {}  # by storage, by maker
        self._combined: dict[int, Mark] = {}  # all so far, by maker
        self._numbers: set[float] = set()  # in the kernels of this run
        self.outside: list[str] = []  # what differed before a graph was entered
        self.launches = 0

    # -- what the follower calls -------------------------------------------------------------------------

    def entered(self, inputs: list[Made]) -> None:
        for made in inputs:
            value = self._flow.values.get(made.key)
            if value is None or self._marks.get(made.storage):
                continue
            fitting, found = self._compared(value, made)
            if fitting is None or found is None or not found.differing:
                continue
            if fitting.dims or self._selection.tests == "repeat":
                self.outside.append(made.argument)
                self._put_right(value, made, fitting)
            elif made.tensor.is_floating_point():  # a number that the program has read from a tensor
                self._marks[made.storage] = dict(self._combined)
                self.outside += [] if self._combined else [made.argument]

    def launched(self, launch: Launched) -> None:
        self.launches += 1
        self._numbers |= launch.code.numbers
        given: dict[int, Mark] = {}
        for storage in launch.reads:
            given |= self._marks.get(storage, {})
        left: dict[int, dict[int, Mark]] = {storage: {} for storage in launch.writes}
        followed = {made.storage for made in launch.made}
        for made in launch.made:
            left.setdefault(made.storage, {}).update(self._judged(launch, made, given))
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
        fitting, found = self._compared(whole, made)
        if found is None or fitting is None:
            return self._outcome("unfollowed", launch, made, reason=_OTHER_SHAPE)
        if not found.differing or (not fitting.dims and self._selection.tests != "repeat"):
            return None
        if self._blamed(launch, made, found, self._marks.get(storage, {})):
            return None
        return self._outcome("variant", launch, made, found)

    # -- one result --------------------------------------------------------------------------------------

    def _judged(self, launch: Launched, made: Made, given: dict[int, Mark]) -> dict[int, Mark]:
        """What its memory is marked with from now on; the outcome goes to the kernel that it belongs to."""
        value = self._flow.values.get(made.key) if made.key is not None else None
        if value is None or value.maker is None:
            return given | {-self.launches: Mark(-1, launch.code.name, "unfollowed", code=launch.code)}
        maker = value.maker
        fitting, found = self._compared(value, made)
        if fitting is None or found is None:
            self._note(maker, self._outcome("unfollowed", launch, made, reason=_OTHER_SHAPE))
            return given | {maker: Mark(maker, launch.code.name, "unfollowed", made, code=launch.code)}
        if not found.differing:
            self._note(maker, self._outcome("same", launch, made, found))
            return {}
        if self._selection.tests == "repeat" and not launch.is_random:
            self._note(maker, self._outcome("variant", launch, made, found))
            self._put_right(value, made, fitting)
            return {}
        if launch.is_random:
            self._note(maker, self._outcome("unfollowed", launch, made, reason="it draws random numbers"))
            if fitting.dims:
                self._put_right(value, made, fitting)
            return {}
        if not made.is_certain and found.is_gross:
            self._note(maker, self._outcome("unfollowed", launch, made, reason=_OTHER_PART))
            return given | {maker: Mark(maker, launch.code.name, "unfollowed", made, code=launch.code)}
        kind = self._kind(launch, value, made, fitting, found)
        if kind:
            reasons = {"combined": "its result combines rows and belongs to none of them",
                       "place": "its result holds indices of rows"}  # fmt: skip
            reason = reasons.get(kind, "it puts rows in an order that depends on the others")
            status = "combined" if kind == "combined" else "unfollowed"
            self._note(maker, self._outcome(status, launch, made, found, reason=reason))
            mark = Mark(maker, launch.code.name, kind, made, found, launch.code)
            self._combined |= {maker: mark} if kind == "combined" else {}
            return given | {maker: mark}
        if self._blamed(launch, made, found, given):
            self._note(maker, self._outcome("handed", launch, made, found))
        else:
            joined = tuple(dict.fromkeys(m.name for m in given.values() if m.kind == "unfollowed"))
            self._note(maker, self._outcome("variant", launch, made, found, joined=joined))
        self._put_right(value, made, fitting)
        return {}

    def _kind(self, launch: Launched, value: Value, made: Made, fitting: RowMap, found: Difference) -> str:
        """Why it cannot be compared row by row; "": it can."""
        if not fitting.dims:
            return "combined"
        if not (made.tensor.is_floating_point() or made.tensor.is_complex()) or not launch.has_inputs:
            return "place"
        if found.is_gross:
            share = len(self._selection.places) / self._selection.size
            how = reordered(value.tensor, made.tensor, fitting.dims[0][0], share)
            return {"exact": "reordered", "close": "close"}.get(how, "")
        return ""

    def _blamed(self, launch: Launched, made: Made, found: Difference, given: dict[int, Mark]) -> bool:
        """Whether an earlier kernel, whose result could not be put right, is to blame; it is then noted."""
        suspects = [mark for mark in given.values() if mark.is_suspect]
        if not suspects and self._reads_numbers(made, launch.code):
            suspects = list(self._combined.values())
        if not suspects and found.is_gross:
            suspects = [mark for mark in given.values() if mark.moves_rows]
        if not suspects:
            return False
        first = min(suspects, key=lambda mark: mark.maker)
        assert first.made is not None
        argument = first.made.argument
        outcome = Outcome(
            self._selection.name, self._selection.tests, "variant", "", argument, first.found or found,
            first.code, (), launch.code.name,
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

    def _compared(self, value: Value, made: Made) -> tuple[RowMap | None, Difference | None]:
        """Where the rows are, and how far they are apart; nothing where the shapes do not fit."""
        chosen, flow = self._selection, self._flow
        whole, part = value.tensor, made.tensor
        if whole.dtype != part.dtype:
            return None, None
        maps = candidates(whole.shape, flow.size, part.shape, chosen.size)
        if maps is None:
            return None, None
        is_other_size = flow.size != chosen.size
        if chosen.tests == "repeat":
            maps = [NO_ROWS]
        elif value.maps:
            maps = [each for each in maps if each in value.maps] if is_other_size else value.maps
        if not maps:
            return None, None
        taken = [(each, *self._rows(each, whole, part)) for each in maps]
        equal = [each for each, a, b in taken if same(a, b)]
        if equal:
            if is_other_size:
                value.maps = equal
            return equal[0], Difference(part.numel(), 0, 0.0, 0, 0.0)
        if not is_other_size and value.maps is None and chosen.tests != "repeat":
            return None, None  # it is not known where its rows are
        best = min(((each, difference(a, b)) for each, a, b in taken), key=lambda pair: pair[1].relative)
        if is_other_size:
            value.maps = maps if best[1].is_gross else [best[0]]
        return best

    def _rows(
        self, rows: RowMap, whole: torch.Tensor, part: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self._selection
        return rows.take(whole, self._flow.size, chosen.kept), rows.take(part, chosen.size, chosen.places)

    def _put_right(self, value: Value, made: Made, rows: RowMap) -> None:
        chosen = self._selection
        values = rows.take(value.tensor, self._flow.size, chosen.kept)
        with torch.no_grad(), quiet():
            right = rows.put(made.tensor, chosen.size, chosen.places, values)
            made.memory.detach().copy_(right.reshape(made.memory.shape))

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
