"""On one rank: memory holds what the last recorded call left in it, until another call writes to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kernelscope.events import FOREIGN_MEMORY
from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import same_hash

from .constants import Constants
from .deviation import CHANGED, RECHECK, Deviation
from .rank import Rank
from .replicas import Updates

MOST_CALLS = 300_000  # of a rank: each is read in full
_CHUNK = 2_000
_READ, _WROTE = "read", "wrote"
UNRECORDED = "code that is not recorded (NumPy, another thread, an extension)"


def changed_memory(rank: Rank, constants: Constants, updates: Updates | None = None) -> Iterator[Deviation]:
    """Outputs that hold something else when they are next read; eager operators are read again each time.

    `constants` sees what compiled graphs are given, where the memory is not known; `updates` the optimizer.
    """
    if len(rank.columns) > MOST_CALLS:
        return
    has_operators = rank.run.info.settings.get("ops") == "all"
    # The program may write to an array of NumPy whenever it likes.
    foreign = {
        int(mark.text) for mark in rank.run.marks if mark.kind == FOREIGN_MEMORY and mark.text.isdigit()
    }
    held: dict[tuple[Any, ...], tuple[Any, int, str]] = {}  # by version: its hash, and which call did what
    for begin in range(0, len(rank.columns), _CHUNK):
        for position, call in enumerate(rank.reader.between(begin, begin + _CHUNK), begin):
            if call.graph_call is not None:
                constants.see(call)
                continue
            if not has_operators:
                continue
            if updates is not None:
                updates.see(call)
            storages, pre, post = call.storages, call.pre_hashes, call.post_hashes
            written = [i for i, a in enumerate(call.arguments) if a.role in ("out", "inout")]
            writes = Counter(storages[i][0] for i in written if i in storages)
            for i in sorted(pre.keys() & storages.keys()):
                version = _version(call, i, 0)
                before = held.setdefault(version, (pre[i], position, _READ))
                if call.arguments[i].role == "out":
                    continue  # about to be written over: its memory may have been given back in between
                if not same_hash(before[0], pre[i]):
                    held[version] = pre[i], position, _READ
                    if storages[i][0] in foreign:
                        continue
                    yield _changed(rank, before[1], before[2], call, i)
            for i in sorted(post.keys() & storages.keys()):
                version = _version(call, i, writes[storages[i][0]])
                held[version] = post[i], position, _WROTE if i in written else _READ


def limit_note(number: int, calls: int) -> list[str]:
    if calls <= MOST_CALLS:
        return []
    return [f"rank {number} has more than {MOST_CALLS} calls: memory between calls was not checked"]


def _changed(rank: Rank, earlier: int, did: str, reader: KernelCall, i: int) -> Deviation:
    before = rank.at(earlier)
    storage = reader.storages[i][0]
    names = [before.arg_names[j] for j, (other, _, _) in before.storages.items() if other == storage]
    reason = (
        f"the memory that it {did} had changed when call {reader.index}, {reader.kernel_name}, read it "
        f"as {reader.arg_names[i]}; no recorded call wrote to it in between: the memory was corrupted, or "
        f"{UNRECORDED} wrote to it"
    )
    return rank.deviation(CHANGED, earlier, reason, argument=names[-1] if names else None)


def _version(call: KernelCall, i: int, later: int) -> tuple[Any, ...]:
    storage, epoch, offset = call.storages[i]
    tensor = call.arguments[i].tensor
    return storage, epoch + later, offset, tensor and tensor.reading


def rechecked(rank: Rank) -> Iterator[Deviation]:
    """Calls that gave another result when --recheck ran them again on the spot."""
    for finding in rank.run.noted_findings():
        if finding.kind == "recheck" and finding.call >= 0:
            yield rank.deviation(
                RECHECK, rank.position(finding.call), finding.message, argument=finding.arg or None
            )
