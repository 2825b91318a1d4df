"""Where the hashes of two listings differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from kernelscope.model.call_facts import same_hash

from .hashes import Hashes, Logged, hashes_of

_NAN = float("nan")


def hash_mismatches(
    logs1: Sequence[Logged], logs2: Sequence[Logged], compare_inputs: bool
) -> list[dict[str, Any]]:
    """One dict for every hash that differs, and one for every call that only one listing has."""
    first, second = [hashes_of(c) for c in logs1], [hashes_of(c) for c in logs2]
    keys1, keys2 = [h.key for h in first], [h.key for h in second]
    blocks: Sequence[tuple[str, int, int, int, int]]
    if keys1 == keys2:
        blocks = [("equal", 0, len(first), 0, len(second))]
    else:
        blocks = SequenceMatcher(None, keys1, keys2, autojunk=False).get_opcodes()
    found: list[dict[str, Any]] = []
    for tag, from1, to1, from2, to2 in blocks:
        if tag == "equal":
            for call1, call2 in zip(first[from1:to1], second[from2:to2], strict=True):
                found += _differences(call1, call2, compare_inputs)
        else:
            found += [_only("first", i, first[i]) for i in range(from1, to1)]
            found += [_only("second", i, second[i]) for i in range(from2, to2)]
    return found


def refuse_other_structure(logs1: Sequence[Logged], logs2: Sequence[Logged]) -> None:
    """As stock does: listings of different structure are an error."""
    if len(logs1) != len(logs2):
        raise ValueError(f"Log lengths don't match: {len(logs1)} vs {len(logs2)} entries")
    for i, (one, other) in enumerate(zip(logs1, logs2, strict=True)):
        mine, theirs = hashes_of(one), hashes_of(other)
        if mine.key != theirs.key:
            raise ValueError(f"Operators don't match at index {i}: {mine.shown} vs {theirs.shown}")
        if one.call_depth != other.call_depth:
            depths = f"{one.call_depth} vs {other.call_depth}"
            raise ValueError(f"Call depths for {mine.shown} don't match at index {i}: {depths}")


def _differences(call1: Hashes, call2: Hashes, compare_inputs: bool) -> Iterator[dict[str, Any]]:
    if bool(call1.post) != bool(call2.post):
        which = "first" if call1.post else "second"
        yield _entry(call1, difference=f"only the {which} run has hashes of this call")
        return
    # Inputs first: a differing input explains a differing output of the same call.
    if compare_inputs:
        yield from _compare(call1, call2, call1.pre, call2.pre, is_input=True)
    outputs1 = {i: h for i, h in call1.post.items() if i in call1.modified}
    outputs2 = {i: h for i, h in call2.post.items() if i in call2.modified}
    yield from _compare(call1, call2, outputs1, outputs2, is_input=False)


def _compare(
    call1: Hashes, call2: Hashes, hashes1: dict[int, Any], hashes2: dict[int, Any], *, is_input: bool
) -> Iterator[dict[str, Any]]:
    for i in sorted(hashes1.keys() | hashes2.keys()):
        if i in hashes1 and i in hashes2 and same_hash(hashes1[i], hashes2[i]):
            continue
        call = call1 if i in hashes1 else call2
        yield _entry(
            call, i, hashes1.get(i), hashes2.get(i), is_input=is_input, difference=_why(i, hashes1, hashes2)
        )


def _why(i: int, hashes1: dict[int, Any], hashes2: dict[int, Any]) -> str:
    if i not in hashes1 or i not in hashes2:
        return f"only the {'first' if i in hashes1 else 'second'} run has a hash of this argument"
    kinds = [float if isinstance(h[i], float) else type(h[i]) for h in (hashes1, hashes2)]
    if kinds[0] is not kinds[1]:
        return "the runs used different hash functions"
    return "the hashes differ"


def _only(which: str, position: int, call: Hashes) -> dict[str, Any]:
    return _entry(call, difference=f"only in the {which} run, at position {position}")


def _entry(
    call: Hashes,
    i: int | None = None,
    hash1: Any = None,
    hash2: Any = None,
    *,
    is_input: bool = False,
    difference: str = "",
) -> dict[str, Any]:
    return {
        "call_type": call.call_type,
        "call": call.shown,
        "arg_name": call.arguments[i] if call.paths is None and i is not None else None,
        "pytree_path": call.paths[i] if call.paths is not None and i is not None else None,
        "hash1": hash1,
        "hash2": hash2,
        "rel_diff": relative_difference(hash1, hash2),
        "is_input_hash": is_input,
        "difference": difference,
    }


def relative_difference(hash1: Any, hash2: Any) -> float:
    """|a − b| / max(|a|, |b|); NaN for what is not a number, the largest one for lists."""
    if isinstance(hash1, tuple | list) and isinstance(hash2, tuple | list):
        each = [relative_difference(a, b) for a, b in zip(hash1, hash2, strict=False)]
        return max((d for d in each if d == d), default=_NAN)
    if not isinstance(hash1, int | float | complex) or not isinstance(hash2, int | float | complex):
        return _NAN
    return float(abs(hash1 - hash2) / max(abs(hash1), abs(hash2), 1e-10))
