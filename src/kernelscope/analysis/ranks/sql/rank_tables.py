"""What the tables hold about one rank: `export` writes them, and the SQL beside this file reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelscope.analysis.diff.verdicts import alignments, settings_of
from kernelscope.analysis.ranks.chosen import rechecks, summary
from kernelscope.analysis.ranks.collective_order import Key, numbered
from kernelscope.analysis.ranks.collective_results import gives_all_the_same
from kernelscope.analysis.ranks.constants import Constants
from kernelscope.analysis.ranks.contents import changed_memory, rechecked
from kernelscope.analysis.ranks.random_numbers.generators import states_of
from kernelscope.analysis.ranks.rank import Rank
from kernelscope.analysis.ranks.replicas import Updates
from kernelscope.analysis.ranks.same_inputs import ComparableCalls, comparable, is_known
from kernelscope.analysis.ranks.sent.transfers import Piece, is_checked, transfer
from kernelscope.analysis.ranks.waits import Waits
from kernelscope.model.call import KernelCall
from kernelscope.store.columns import text_word, word
from kernelscope.text.hashes import full_hash

# One row for each call whose result must be the same wherever its inputs are.
HASHES = {
    "index": "int64", "step": "int64", "kernel_name": "string", "key": "word", "base": "word",
    "result": "word", "settings": "word", "alignment": "word", "is_known": "flag",
}  # fmt: skip
COLLECTIVES = {
    "index": "int64", "step": "int64", "kernel_name": "string", "meeting": "word", "process_group": "string",
    "members": "string", "number": "int64", "is_same_everywhere": "flag", "result": "word",
    "names": "list<string>", "values": "list<string>",
    # Of a broadcast or an all-gather: what it put in and what it got, and how they were read.
    "root": "int64", "sent_names": "list<string>", "sent": "list<string>", "got": "list<string>",
    "pieces": "list<string>",
}  # fmt: skip
DEVIATIONS = {"index": "int64", "kind": "string", "argument": "string", "reason": "string"}
CONSTANTS = {
    "key": "word", "argument": "string", "value": "word", "before": "int64", "changed": "int64",
    "other": "word", "after": "int64",
}  # fmt: skip
# One row for each tensor that the optimizer updates, and step; see `replicas`.
UPDATES = {
    "kind": "word", "number": "int64", "first": "word", "step": "int64", "after": "word", "index": "int64",
    "argument": "string", "kernel_name": "string", "origin": "string", "given": "word", "numbers": "word",
}  # fmt: skip
GENERATORS = {"step": "int64", "device": "string", "state": "string"}
RANKS = {
    "rank": "int64", "local_rank": "int64", "host": "string", "part": "string", "calls": "int64",
    "steps": "int64", "collectives": "int64", "torch": "string", "is_closed": "flag", "rechecked": "int64",
}  # fmt: skip

_BLOCK = 100_000  # calls: a file has at least so many, unless the rank has fewer

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Successive steps of a rank that are in one file."""

    first: int  # position
    last: int  # position, not included
    steps: str  # "0-41"


def blocks(rank: Rank, least: int = _BLOCK) -> Iterator[Block]:
    step = rank.columns.step
    highest = np.maximum.accumulate(step)
    starts = [0, *(np.flatnonzero(highest[1:] > highest[:-1]) + 1).tolist()]
    begin = 0
    for following in [*starts[1:], len(step)]:
        if following == len(step) or following - begin >= least:
            yield Block(begin, following, f"{highest[begin]}-{highest[following - 1]}")
            begin = following


class HashRows:
    """The rows of HASHES, block by block."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._calls: ComparableCalls = comparable(rank)
        self._settings: dict[tuple[Any, ...], int] = {}

    def of(self, begin: int, calls: list[KernelCall]) -> list[Row]:
        """Of calls that follow one another; `begin` is the position of the first."""
        found = []
        first, last = np.searchsorted(self._calls.at, (begin, begin + len(calls)))
        for i in range(int(first), int(last)):
            call = calls[int(self._calls.at[i]) - begin]
            key, base = int(self._calls.key[i]), int(self._calls.inputs[i])
            found.append({
                "index": call.index, "step": call.step, "kernel_name": call.kernel_name, "key": key,
                "base": None if key == base else base, "result": int(self._calls.left[i]),
                "settings": self._settings_of(call), "alignment": self._alignment_of(call),
                "is_known": is_known(call),
            })  # fmt: skip
        return found

    def _settings_of(self, call: KernelCall) -> int:
        reader = self._rank.reader
        known = call.site.id, call.device, repr(reader.switches(call))
        if known not in self._settings:
            told = settings_of(call, reader)
            self._settings[known] = text_word(repr(sorted(told.items(), key=str)))
        return self._settings[known]

    @staticmethod
    def _alignment_of(call: KernelCall) -> int:
        return text_word(repr(sorted(alignments(call).items())))


def collective_rows(rank: Rank) -> Iterator[Row]:
    waits = Waits(rank)
    for position, key in numbered(rank):
        call = rank.at(position)
        gave = waits.gave(position)
        yield {
            "index": call.index, "step": call.step, "kernel_name": call.kernel_name,
            "meeting": meeting_word(key), "process_group": key[0], "members": ",".join(map(str, key[1])),
            "number": key[2], "is_same_everywhere": gives_all_the_same(call.kernel_name),
            "result": text_word(repr([word(value) for value in gave.values()])) if gave else None,
            "names": [call.arg_names[i] for i in gave], "values": [str(full_hash(v)) for v in gave.values()],
            **_sent(call, gave, waits.pieces(position) if is_checked(call.kernel_name) else {}),
        }  # fmt: skip


def _sent(call: KernelCall, gave: dict[int, Any], pieces: dict[str, Piece]) -> Row:
    if not is_checked(call.kernel_name):
        return {"root": None, "sent_names": [], "sent": [], "got": [], "pieces": []}
    found = transfer(call, gave, pieces)
    sent = {"sent_names": list(found.sent), "sent": list(found.sent.values())}
    texts = [piece.text(name) for name, piece in pieces.items()]
    return {"root": found.root, **sent, "got": list(found.gave.values()), "pieces": texts}


def meeting_word(key: Key) -> int:
    return text_word(repr(key))


def deviation_rows(rank: Rank, constants: Constants, updates: Updates) -> Iterator[Row]:
    """What is wrong on a rank, whatever the others did; `constants` and `updates` are then filled."""
    for each in (*changed_memory(rank, constants, updates), *rechecked(rank)):
        yield {
            "index": each.index, "kind": each.kind, "argument": each.argument, "reason": each.reason,
        }  # fmt: skip


def constant_rows(constants: Constants) -> Iterator[Row]:
    return ({name: getattr(each, name) for name in CONSTANTS} for each in constants)


def update_rows(updates: Updates) -> Iterator[Row]:
    for kind, number in sorted(updates.own_contents()):
        known = updates.by_key[kind, number]
        for step, update in sorted(known.left.items()):
            about = {"kind": kind, "number": number, "first": known.first, "step": step}
            did = {"after": update.after, "given": update.given, "numbers": update.numbers}
            yield about | did | updates.place((kind, number), step)


def generator_rows(rank: Rank) -> Iterator[Row]:
    for step, states in states_of(rank).items():
        yield from ({"step": step, "device": device, "state": state} for device, state in states.items())


def rank_row(rank: Rank) -> Row:
    found = summary(rank)
    return {name: getattr(found, name, None) for name in RANKS} | {"rechecked": rechecks(rank)}
