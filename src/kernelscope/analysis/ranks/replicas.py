"""Tensors that an optimizer updates: whether those that begin alike on all ranks stay alike.

Contents that are the same on all ranks, and that no other tensor of a rank has, are those of replicas: zeros
and ones are not. It is not known that replicas must stay alike (shards may begin from the same random
numbers, and some programs average parameters only now and then), so what is found here is a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelscope.analysis.sharding.declared import DTensors
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import text_word, word
from kernelscope.text.amounts import counted

from .rank import Rank, site_key


@dataclass(slots=True)
class _Updated:
    first: int  # a word of what it held before
    left: dict[int, tuple[int, KernelCall, int]] = field(
        default_factory=dict
    )  # by step: word, call, argument


class Updates:
    """What the optimizer of one rank updates; DTensors that are sharded are left out."""

    def __init__(self, rank: Rank) -> None:
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
            known.left[call.step] = word(post[i]), call, i

    def place(self, key: tuple[int, int], step: int) -> dict[str, Any]:
        """The last update of a tensor in a step."""
        _, call, position = self.by_key[key].left[step]
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


def replica_notes(ranks: Mapping[int, Updates]) -> Iterator[str]:
    first, *others = ranks.values()
    own = set.intersection(*(each.own_contents() for each in ranks.values()))
    alike = {key for key in own if all(each.by_key[key].first == first.by_key[key].first for each in others)}
    if len(alike) < len(own):
        yield began_unlike(len(own) - len(alike), len(own))
    drifted = {key: step for key in alike if (step := _differs_at(key, [first, *others])) is not None}
    if drifted:
        key = min(drifted, key=lambda each: (drifted[each], first.by_key[each].left[drifted[each]][1].index))
        step = drifted[key]
        yield drifted_apart(len(drifted), len(alike), step, first.place(key, step), min(ranks))


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
        "these are replicas, their gradients were not reduced"
    )


def _differs_at(key: tuple[int, int], ranks: list[Updates]) -> int | None:
    """The first step that all ranks have after which it is not the same on all of them."""
    left = [each.by_key[key].left for each in ranks]
    common = set.intersection(*(set(each) for each in left))
    return min((step for step in common if len({each[step][0] for each in left}) > 1), default=None)
