"""Backward passes whose gradients are added up: of a batch in parts, they are one pass together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch

from .calls_and_values import LEAF, Call, Flow, Value
from .lines import of_one_line


def is_same_turn(ours: Call, theirs: Call) -> bool:
    """Between the same backward passes; compiled code may compute before a pass what the pass needs.

    The other program may compute in several passes, of parts of a batch, what the reference does in one.
    """
    return _is_same_turn(ours, theirs, theirs.turn) or (
        theirs.joined_turn >= 0 and _is_same_turn(ours, theirs, theirs.joined_turn)
    )


def _is_same_turn(ours: Call, theirs: Call, turn: int) -> bool:
    is_saved = ours.turn + 1 == turn and ours.phase != "backward" and theirs.phase == "backward"
    is_needed = turn + 1 == ours.turn and theirs.phase != "backward" and ours.phase == "backward"
    return ours.turn == turn or is_saved or is_needed


def join_passes(flow: Flow) -> None:
    """Each call gets the number of passes that had begun, those counted as one whose gradients are added up.

    They are if a pass adds to gradients that the pass before has left, and nothing was changed by those in
    between, as weights are: a norm that is shown changes nothing.
    """
    joined = _joined(flow)
    if not joined:
        return
    for call in flow.calls:
        is_backward = call.phase == "backward"
        before = sum(each <= call.turn for each in joined)
        # What is computed between two passes that are one comes before that one.
        between = not is_backward and call.turn + 1 in joined
        call.joined_turn = call.turn - before - between


def _joined(flow: Flow) -> set[int]:
    """Passes, by number, that are one with the pass before."""
    found, used = set[int](), set[int]()
    computed_of = dict[int, set[int]]()  # by number of a value: the passes whose gradients it is computed of
    for call in flow.calls:
        gradients = {n for n in call.reads if _is_gradient(flow, n)}
        if call.phase != "backward" and (next_pass := _pass_added_next(flow, call, gradients)) is not None:
            if next_pass - 1 not in used:
                found.add(next_pass)
        elif call.phase != "backward":
            passes = {_pass_of(flow, number) for number in gradients}
            passes.update(*(computed_of.get(number, ()) for number in call.reads))
            if any(flow.replaced.get(number) for number in call.writes):
                used |= passes
            elif passes:
                computed_of |= dict.fromkeys(call.writes, passes)
        elif call.operator == "add":
            replaced = {before for number in call.writes for before in flow.replaced.get(number, ())}
            last = {n for n in gradients & replaced if _pass_of(flow, n) == call.turn - 1}
            if last and call.turn - 1 not in used:
                found.add(call.turn)
    return found


def _pass_added_next(flow: Flow, call: Call, gradients: set[int]) -> int | None:
    """Of a sum that the program makes itself and nothing reads before: the next pass that is added to it.

    In the last step of a sum, the pass that has been added.
    """
    if call.operator != "add" or len(gradients) != 1 or len(call.writes) != 1:
        return None
    turn = _pass_of(flow, *gradients)
    if any(_added_pass(flow, number) == turn - 1 for number in flow.replaced.get(call.writes[0], ())):
        return turn
    readers = flow.values[call.writes[0]].readers
    if len(readers) != 1 or call.writes[0] not in flow.replaced.get(flow.calls[readers[0]].writes[0], ()):
        return None
    return turn + 1 if _added_pass(flow, flow.calls[readers[0]].writes[0]) == turn + 1 else None


def _added_pass(flow: Flow, number: int) -> int | None:
    """The pass whose gradient was added to something, outside of a pass, and so made this value."""
    made_by = flow.values[number].call
    call = flow.calls[made_by] if made_by != LEAF else None
    if call is None or call.operator != "add" or call.phase == "backward":
        return None
    passes = {_pass_of(flow, n) for n in call.reads if _is_gradient(flow, n)}
    return passes.pop() if len(passes) == 1 else None


def _pass_of(flow: Flow, number: int) -> int:
    return flow.calls[flow.values[number].call].turn


def _is_gradient(flow: Flow, number: int) -> bool:
    made_by = flow.values[number].call
    return made_by != LEAF and flow.calls[made_by].phase == "backward"


def _parts_of_batches(flow: Flow) -> list[int]:
    """How many passes there are for each batch."""
    joined, found = _joined(flow), list[int]()
    for turn in sorted({call.turn for call in flow.calls if call.phase == "backward"}):
        if turn in joined and found:
            found[-1] += 1
        else:
            found.append(1)
    return found


class PartsOfSums:
    """Values that one line made of each part of a batch, such as its loss: they have the whole's form."""

    def __init__(self, flow: Flow) -> None:
        """The passes of this flow have been joined."""
        self._flow = flow
        self._passes: dict[int, set[int]] = defaultdict(set)  # by the number of a joined pass: those in it
        for call in flow.calls:
            if call.joined_turn >= 0 and call.phase == "backward":
                self._passes[call.joined_turn].add(call.turn)
        self._found: dict[tuple[tuple[int, ...], str], list[list[Value]]] = {}

    def are_others(self, flow: Flow) -> bool:
        """Whether the reference adds up gradients of parts, and this program those of other parts."""
        ours, theirs = _parts_of_batches(flow), _parts_of_batches(self._flow)
        return max(ours, default=0) > 1 and len(ours) == len(theirs) and ours != theirs

    def fitting(
        self, call: Call, tensor: torch.Tensor, *, any_operator: bool = False
    ) -> Iterator[list[Value]]:
        """Those of the same operator, of all parts of one batch."""
        if not self._passes or not tensor.is_floating_point():
            return
        key = tuple(tensor.shape), "" if any_operator else call.operator
        if key not in self._found:
            self._found[key] = list(self._series(*key))
        for parts in self._found[key]:
            if all(is_same_turn(call, self._flow.calls[part.call]) for part in parts):
                yield parts

    def _series(self, shape: tuple[int, ...], operator: str) -> Iterator[list[Value]]:
        by_turn: dict[int, list[Value]] = defaultdict(list)
        for value in self._flow.values:
            if value.call != LEAF and value.shape == shape and value.eps:
                made_by = self._flow.calls[value.call]
                if operator in ("", made_by.operator):
                    by_turn[made_by.joined_turn + (made_by.phase != "backward")].append(value)
        for turn, values in by_turn.items():
            count = len(self._passes[turn]) if turn in self._passes else 0
            for group in of_one_line(self._flow, values) if count > 1 else ():
                if len(group) % count == 0:
                    layers = len(group) // count
                    yield from (group[first::layers] for first in range(layers))
