"""A broadcast must give what its root held, an all-gather what each rank held, in a list or in one tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelscope.model.call import KernelCall
from kernelscope.text.hashes import full_hash

_OUTPUT = re.compile(r"output_(?:tensors|lists)\[(\d+)\]\[(\d+)\]")
_PIECE = re.compile(r"(\d{1,9}) (\S+) (\S+) (.+)")
_ROOTS = ("root_rank", "src")


@dataclass(frozen=True, slots=True)
class Piece:
    """What a rank got of another one, as a part of one tensor."""

    place: int  # of the sender, in the group
    source: str  # its argument
    content: str

    def text(self, name: str) -> str:
        return f"{self.place} {self.source} {name} {self.content}"

    @classmethod
    def named(cls, texts: Iterable[str]) -> dict[str, Piece]:
        """By argument; a text of another form is left out."""
        found = [match for text in texts if (match := _PIECE.fullmatch(text)) is not None]
        return {match[3]: cls(int(match[1]), match[2], match[4]) for match in found}


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one rank put into a collective and what it got; contents are a hash and how it was read."""

    kernel: str
    index: int
    root: int | None  # of a broadcast: its place in the group
    sent: Mapping[str, str] = field(default_factory=dict)  # by argument
    gave: Mapping[str, str] = field(default_factory=dict)
    pieces: Mapping[str, Piece] = field(default_factory=dict)  # of what it got in one tensor


@dataclass(frozen=True, slots=True)
class Wrong:
    """One that does not fit: at `rank`, which is the sender if no rank got what it sent."""

    rank: int
    argument: str
    reason: str
    other: int


def transfer(call: KernelCall, gave: Mapping[int, Any], pieces: Mapping[str, Piece]) -> Transfer:
    names = call.arg_names
    values = dict(zip(names, call.args, strict=False))
    root = next((values[name] for name in _ROOTS if isinstance(values.get(name), int)), None)
    sent = {
        names[i]: content(call, i, value)
        for i, value in call.pre_hashes.items()
        if call.arguments[i].role in ("in", "inout")
    }
    return Transfer(
        call.kernel_name,
        call.index,
        root,
        sent,
        {names[i]: content(call, i, v) for i, v in gave.items()},
        pieces,
    )


def content(call: KernelCall, i: int, value: Any) -> str:
    tensor = call.arguments[i].tensor
    return f"{full_hash(value)} {tensor and tensor.reading}"


def is_checked(kernel: str) -> bool:
    return any(word in kernel for word in ("broadcast", "allgather_", "all_gather_into_tensor"))


def source_of(kernel: str, argument: str, root: int | None) -> tuple[int, str] | None:
    """Whose argument it must equal: a place in the group, and a name; None where that is not known."""
    if "broadcast" in kernel:
        return None if root is None else (root, argument if argument.startswith("tensors") else "input")
    found = _OUTPUT.fullmatch(argument)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2])
    is_list = argument.startswith("output_lists")  # by rank and tensor; the others by tensor and rank
    return (first, f"input_list[{second}]") if is_list else (second, f"input_tensors[{first}]")


def compare(
    by_rank: Mapping[int, Transfer], members: Sequence[int], number: int, group: str
) -> tuple[int, list[Wrong]]:
    """How many results were compared with what was sent, and those that differ from it."""
    compared, found = 0, list[Wrong]()
    for (place, name), got in sorted(_results(by_rank).items()):
        sender = members[place] if place < len(members) else -1
        sent = by_rank[sender].sent.get(name) if sender in by_rank else None
        if sent is None:
            continue
        fitting = {each: value for each, value in got.items() if _reading(value[1]) == _reading(sent)}
        compared += len(fitting)
        wrong = [each for each, (_, content) in fitting.items() if content != sent]
        what = f"of what rank {sender} put into collective {number} of group {group}"
        if len(wrong) > 1 and len(wrong) == len(fitting):  # they cannot all be wrong about it
            told = f"call {by_rank[sender].index}"
            other = next(each for each in wrong if each != sender)
            found.append(Wrong(sender, name, f"no rank got the values {what} ({told})", other))
            continue
        for rank in wrong:
            at = by_rank[sender].index
            found.append(Wrong(rank, got[rank][0], f"it did not get the values {what} (call {at})", sender))
    return compared, found


def _results(by_rank: Mapping[int, Transfer]) -> dict[tuple[int, str], dict[int, tuple[str, str]]]:
    """By what was sent: what each rank got of it, with the name of its argument."""
    found: dict[tuple[int, str], dict[int, tuple[str, str]]] = {}
    for rank, each in by_rank.items():
        for argument, content in each.gave.items():
            source = source_of(each.kernel, argument, each.root)
            if source is not None:
                found.setdefault(source, {})[rank] = argument, content
        for argument, piece in each.pieces.items():
            found.setdefault((piece.place, piece.source), {})[rank] = argument, piece.content
    return found


def _reading(content: str) -> str:
    return content.partition(" ")[2]


def ordered(wrong: Sequence[Wrong]) -> Iterator[Wrong]:
    """One for each rank: the first of its arguments."""
    seen = set[int]()
    for each in wrong:
        if each.rank not in seen:
            seen.add(each.rank)
            yield each
