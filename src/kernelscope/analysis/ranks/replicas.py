"""Tensors that an optimizer updates: whether those that begin alike on all ranks stay alike.

Contents that are the same on all ranks, and that no other tensor of a rank has, are those of replicas: zeros
and ones are not. It is not known that replicas must stay alike (shards may begin from the same random
numbers, and some programs average parameters only now and then). So tensors that drift apart are an open
question, unless what the optimizer read was the same on all ranks: then it was given other numbers, or
updates tensors that began with other values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelscope.analysis.diff.pairs import is_known, scalars
from kernelscope.analysis.sharding.declared import DTensors
from kernelscope.events import Arg
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import text_word, word
from kernelscope.text.amounts import counted

from .collective_results import disputed
from .rank import Rank, site_key


@dataclass(slots=True)
class Update:
    """What the optimizer did to a tensor in one step."""

    after: int  # a word of what it then held
    call: KernelCall  # the last one, and its argument
    position: int
    given: int  # a word of all other tensors that were read
    numbers: int  # and of all numbers


@dataclass(slots=True)
class _Updated:
    first: int  # a word of what it held before
    left: dict[int, Update] = field(default_factory=dict)  # by step


class Updates:
    """What the optimizer of one rank updates; DTensors that are sharded are left out."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank.number
        operators = DTensors(rank.run.marks).operators
        told = [each for operator in operators for each in (*operator.arguments, *operator.results)]
        self._sharded = {each.storage for each in told if not each.layout.is_replicated}
        self._by_place: dict[tuple[int, int], _Updated] = {}
        self._of_its_kind: Counter[int] = Counter()
        self.by_key: dict[tuple[int, int], _Updated] = {}  # the same on all ranks

    def see(self, call: KernelCall) -> None:
        if call.phase != "optimizer":
            return
        storages, pre, post = call.storages, call.pre_hashes, call.post_hashes
        given = [self._word(pre.get(i)) for i, arg in enumerate(call.arguments) if _is_only_read(arg)]
        numbers = repr(list(scalars(call).values()))
        for i, arg in enumerate(call.arguments):
            if arg.role != "inout" or not (i in storages and i in pre and i in post):
                continue
            storage, _, offset = storages[i]
            if storage in self._sharded or arg.tensor is None or arg.tensor.numel < 2:
                continue
            known = self._by_place.get((storage, offset))
            if known is None:
                kind = text_word(repr((site_key(call.site), i)))
                known = self._by_place[storage, offset] = _Updated(word(pre[i]))
                self.by_key[kind, self._of_its_kind[kind]] = known
                self._of_its_kind[kind] += 1
            before = known.left.get(call.step)
            so_far = (before.given, before.numbers) if before is not None else (0, 0)
            known.left[call.step] = Update(
                word(post[i]),
                call,
                i,
                text_word(repr((so_far[0], given))),
                text_word(f"{so_far[1]} {numbers}"),
            )

    def _word(self, value: Any) -> int:
        """What is not known is like nothing of another rank."""
        return word(value) if is_known(value) else text_word(f"unknown on rank {self._rank}")

    def place(self, key: tuple[int, int], step: int) -> dict[str, Any]:
        """The last update of a tensor in a step."""
        update = self.by_key[key].left[step]
        call, position = update.call, update.position
        origin = None if call.origin is None else str(call.origin)
        return {
            "index": call.index, "argument": call.arguments[position].name, "kernel_name": call.kernel_name,
            "origin": origin,
        }  # fmt: skip

    def own_contents(self) -> set[tuple[int, int]]:
        """The keys of those that began with contents that no other had, and live for more than a step."""
        lasting = {key: each for key, each in self.by_key.items() if len(each.left) > 1}
        counts = Counter(each.first for each in lasting.values())
        return {key for key, each in lasting.items() if counts[each.first] == 1}


@dataclass(frozen=True, slots=True)
class WrongUpdate:
    """One that must have been as on the other ranks."""

    rank: int
    index: int
    argument: str
    reason: str
    suspects: tuple[int, ...]
    other_rank: int
    other_index: int


@dataclass(frozen=True, slots=True)
class Replicas:
    """What the tensors say that the optimizers of all ranks update."""

    wrong: tuple[WrongUpdate, ...] = ()
    open_question: str = ""  # whether those that drifted apart are replicas
    notes: tuple[str, ...] = ()


def replicas(ranks: Mapping[int, Updates]) -> Replicas:
    first, *others = ranks.values()
    own = set.intersection(*(each.own_contents() for each in ranks.values()))
    alike = {key for key in own if all(each.by_key[key].first == first.by_key[key].first for each in others)}
    drifted = {key: step for key in alike if (step := _differs_at(key, [first, *others])) is not None}
    places = {key: step for key, step in drifted.items() if _has_other_numbers(key, step, [*ranks.values()])}
    reason = OTHER_NUMBERS
    if not places:
        unlike = {key for key in own - alike if _is_given_the_same(key, [*ranks.values()])}
        places, reason = {key: min(_common_steps(key, [*ranks.values()])) for key in unlike}, BEGAN_UNLIKE
    if places:
        key = _earliest(places, first)
        step = places[key]
        found = {number: each.by_key[key].left[step] for number, each in ranks.items()}
        values = {
            n: u.numbers if reason is OTHER_NUMBERS else ranks[n].by_key[key].first for n, u in found.items()
        }
        updates = {number: (u.call.index, u.call.arguments[u.position].name) for number, u in found.items()}
        return Replicas(tuple(wrong_updates(values, updates, reason)))
    notes = (began_unlike(len(own) - len(alike), len(own)),) if len(alike) < len(own) else ()
    if not drifted:
        return Replicas(notes=notes)
    step = drifted[key := _earliest(drifted, first)]
    told = drifted_apart(len(drifted), len(alike), step, first.place(key, step), min(ranks))
    return Replicas(open_question=told, notes=notes)


OTHER_NUMBERS = (
    "its numbers, such as the learning rate, differ from those of rank {other} (call {index}), although "
    "its tensors were the same on all ranks"
)
BEGAN_UNLIKE = (
    "the tensor that it updates began with values that differ from those of rank {other} (call {index}), "
    "although its gradients are the same on all ranks: the replicas did not start with the same values"
)


def wrong_updates(
    values: Mapping[int, int], updates: Mapping[int, tuple[int, str]], reason: str
) -> Iterator[WrongUpdate]:
    """`values` by rank, which must be one; `updates` has the call and its argument."""
    numbers = sorted(values)
    for rank, other, suspects in disputed(numbers, [values[number] for number in numbers]):
        index, argument = updates[rank]
        told = reason.format(other=other, index=updates[other][0])
        yield WrongUpdate(rank, index, argument, told, suspects, other, updates[other][0])


def _earliest(places: Mapping[tuple[int, int], int], rank: Updates) -> tuple[int, int]:
    return min(places, key=lambda key: (places[key], rank.by_key[key].left[places[key]].call.index, key))


def _is_only_read(arg: Arg) -> bool:
    """Counters of steps, which are the same whatever the gradients are, have one element."""
    return arg.role == "in" and arg.tensor is not None and arg.tensor.numel > 1


def _has_other_numbers(key: tuple[int, int], step: int, ranks: list[Updates]) -> bool:
    found = [each.by_key[key].left[step] for each in ranks]
    return len({each.given for each in found}) == 1 and len({each.numbers for each in found}) > 1


def _is_given_the_same(key: tuple[int, int], ranks: list[Updates]) -> bool:
    """In each step, and not the same in all of them, as gradients of zero would be."""
    steps = _common_steps(key, ranks)
    given = [{each.by_key[key].left[step].given for each in ranks} for step in steps]
    return all(len(each) == 1 for each in given) and len(set.union(set(), *given)) > 1


def _common_steps(key: tuple[int, int], ranks: list[Updates]) -> set[int]:
    return set.intersection(*(set(each.by_key[key].left) for each in ranks))


def began_unlike(count: int, own: int) -> str:
    return (
        f"{count} of {counted(own, 'tensor')} that the optimizer updates began with "
        "different values on the ranks: right for sharded parameters, wrong for replicas"
    )


def drifted_apart(count: int, alike: int, step: int, place: Mapping[str, Any], rank: int) -> str:
    """`place` is of the first one, on `rank`."""
    at = f" at {place['origin']}" if place["origin"] else ""
    return (
        f"{count} of {counted(alike, 'tensor')} that the optimizer updates and that began "
        f"with the same values on all ranks did not stay the same, first {place['argument']} "
        f"of call {place['index']} of rank {rank}, {place['kernel_name']}{at}, in step {step}: if "
        "these are replicas, their gradients were not reduced, or were changed afterwards"
    )


def _differs_at(key: tuple[int, int], ranks: list[Updates]) -> int | None:
    """The first step that all ranks have after which it is not the same on all of them."""
    left = [each.by_key[key].left for each in ranks]
    steps = _common_steps(key, ranks)
    return min((step for step in steps if len({each[step].after for each in left}) > 1), default=None)
