"""Where the hashes of two listings differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import same_hash
from kernelscope.model.kinds import OperatorCall
from kernelscope.model.labels import TensorLabel

from .entries import Entry
from .stock_names import _get_call_name

Logged = KernelCall | Entry
_NAN = float("nan")


def hash_mismatches(
    logs1: Sequence[Logged], logs2: Sequence[Logged], compare_inputs: bool
) -> list[dict[str, Any]]:
    """One dict for every hash that differs, and one for every call that only one listing has."""
    keys1, keys2 = [_key(c) for c in logs1], [_key(c) for c in logs2]
    blocks: Sequence[tuple[str, int, int, int, int]]
    if keys1 == keys2:
        blocks = [("equal", 0, len(logs1), 0, len(logs2))]
    else:
        blocks = SequenceMatcher(None, keys1, keys2, autojunk=False).get_opcodes()
    found: list[dict[str, Any]] = []
    for tag, from1, to1, from2, to2 in blocks:
        if tag == "equal":
            for call1, call2 in zip(logs1[from1:to1], logs2[from2:to2], strict=True):
                found += _differences(call1, call2, compare_inputs)
        else:
            found += [_only("first", i, logs1[i]) for i in range(from1, to1)]
            found += [_only("second", i, logs2[i]) for i in range(from2, to2)]
    return found


def _key(call: Logged) -> tuple[str, str]:
    if isinstance(call, KernelCall):
        return call.kind, call.kernel_name
    return type(call).__name__, call.name


def _differences(call1: Logged, call2: Logged, compare_inputs: bool) -> Iterator[dict[str, Any]]:
    if not (isinstance(call1, KernelCall) and isinstance(call2, KernelCall)):
        return
    if bool(call1.post_hashes) != bool(call2.post_hashes):
        which = "first" if call1.post_hashes else "second"
        yield _entry(call1, difference=f"only the {which} run has hashes of this call")
        return
    # Inputs first: a differing input explains a differing output of the same call.
    if compare_inputs:
        yield from _compare(call1, call2, call1.pre_hashes, call2.pre_hashes, is_input=True)
    outputs1 = {i: h for i, h in call1.post_hashes.items() if i in call1.modified_args}
    outputs2 = {i: h for i, h in call2.post_hashes.items() if i in call2.modified_args}
    yield from _compare(call1, call2, outputs1, outputs2, is_input=False)


def _compare(
    call1: KernelCall,
    call2: KernelCall,
    hashes1: dict[int, Any],
    hashes2: dict[int, Any],
    *,
    is_input: bool,
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


def _only(which: str, position: int, call: Logged) -> dict[str, Any]:
    return _entry(call, difference=f"only in the {which} run, at position {position}")


def _entry(
    call: Logged,
    i: int | None = None,
    hash1: Any = None,
    hash2: Any = None,
    *,
    is_input: bool = False,
    difference: str = "",
) -> dict[str, Any]:
    name = call.arg_names[i] if isinstance(call, KernelCall) and i is not None else None
    return {
        "call_type": _call_type(call),
        "call": _get_call_name(call),
        "arg_name": None if isinstance(call, OperatorCall) else name,
        "pytree_path": _path(call, i) if isinstance(call, OperatorCall) and i is not None else None,
        "hash1": hash1,
        "hash2": hash2,
        "rel_diff": relative_difference(hash1, hash2),
        "is_input_hash": is_input,
        "difference": difference,
    }


def _call_type(call: Logged) -> str:
    if isinstance(call, OperatorCall):
        return "torch op"
    return f"{call.kind} kernel" if isinstance(call, KernelCall) else "annotation"


def _path(call: OperatorCall, i: int) -> str:
    """Where in (args, kwargs), or in the result, the i-th flat argument stands, as stock writes it."""
    arguments = call.arguments
    if arguments[i].returned:
        returned = [j for j, a in enumerate(arguments) if a.returned]
        return f"[{returned.index(i)}]" if len(returned) > 1 else ""
    if call.notes is None:
        return arguments[i].name
    leaves = [*_leaves(call.notes.args, "[0]"), *_leaves(call.notes.kwargs, "[1]")]
    return leaves[i] if i < len(leaves) else arguments[i].name


def _leaves(value: Any, path: str) -> Iterator[str]:
    """Paths in the order in which arguments are made flat: only what may hold tensors is opened."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        place = f"{path}[{key!r}]"
        if isinstance(inner, list | tuple) and any(isinstance(v, TensorLabel) for v in inner):
            yield from _leaves(inner, place)
        else:
            yield place


def relative_difference(hash1: Any, hash2: Any) -> float:
    """|a − b| / max(|a|, |b|); NaN for what is not a number, the largest one for lists."""
    if isinstance(hash1, tuple | list) and isinstance(hash2, tuple | list):
        each = [relative_difference(a, b) for a, b in zip(hash1, hash2, strict=False)]
        return max((d for d in each if d == d), default=_NAN)
    if not isinstance(hash1, int | float | complex) or not isinstance(hash2, int | float | complex):
        return _NAN
    return float(abs(hash1 - hash2) / max(abs(hash1), abs(hash2), 1e-10))
