"""Where the contents of an argument came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import same_hash

_WINDOW = 256  # calls read at once, backwards
_FARTHEST = 20_000  # calls to look back


@dataclass(frozen=True, slots=True)
class Writer:
    """The call that wrote what an argument holds."""

    position: int
    argument: int
    by_value: bool = False  # its memory is not known to be the same, but it left the same values


def writer_of(reader: Reader, position: int, call: KernelCall, argument: int) -> Writer | None:
    """The last call before this one that wrote to the argument's memory, or else left the same values."""
    storage = call.storages.get(argument)
    value = call.pre_hashes.get(argument)
    similar: Writer | None = None
    end = position
    while end > 0 and position - end < _FARTHEST:
        begin = max(0, end - _WINDOW)
        for at, earlier in zip(
            range(end - 1, begin - 1, -1), reversed(reader.between(begin, end)), strict=False
        ):
            written = wrote(earlier, storage)
            if written is not None:
                return Writer(at, written)
            if similar is None and (left := _left(earlier, value)) is not None:
                similar = Writer(at, left, by_value=True)
        end = begin
    return similar


def wrote(call: KernelCall, storage: tuple[int, int, int] | None) -> int | None:
    """The argument through which a call wrote to this memory."""
    if storage is None:
        return None
    found = call.storages
    candidates = [i for i in sorted(call.modified_args) if i in found and found[i][0] == storage[0]]
    exact = [i for i in candidates if found[i][2] == storage[2]]
    return next(iter(exact or candidates), None)


def _left(call: KernelCall, value: Any) -> int | None:
    if value is None:
        return None
    post = call.post_hashes
    return next((i for i in sorted(call.modified_args) if i in post and same_hash(post[i], value)), None)
