"""Gaps where two runs have different calls: whether their results are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelscope.model.call import KernelCall
from kernelscope.model.call_facts import same_hash

from .divergence_parts import DIFFERENT_CONFIG, DIFFERENT_KERNEL
from .verdicts import launch_settings, other_code, unlike


def read_and_left(calls: list[KernelCall]) -> tuple[set[Any], dict[Any, tuple[KernelCall, int]]]:
    """The values that these calls took from outside, and those they left, with who left them where."""
    read: set[Any] = set()
    left: dict[Any, tuple[KernelCall, int]] = {}
    for call in calls:
        read |= {value for value in call.pre_hashes.values() if value not in left}
        post = call.post_hashes
        left |= {post[i]: (call, i) for i in sorted(call.modified_args) if i in post}
    return read, left


@dataclass(frozen=True, slots=True)
class OtherResult:
    """What a call of the first run left and no call of the second, and what that left in its place."""

    call: KernelCall
    position: int
    other: KernelCall
    other_position: int | None  # None: nothing of the same form


def judge_gap(a: list[KernelCall], b: list[KernelCall]) -> OtherResult | None:
    """The call of the first run whose result the second does not have, if that is certain.

    Another fusion keeps other intermediate values; that is no difference as long as what the coarser side
    left is among what the finer side left. Certain is: both read something in common, and left nothing, or
    left other values of one FX node.
    """
    read_a, left_a = read_and_left(a)
    read_b, left_b = read_and_left(b)
    if not left_a or not left_b or not read_a & read_b:
        return None
    if (found := _other_value_of_a_node(a, b)) is not None:
        return found
    if left_a.keys() & left_b.keys():
        return None
    for call, position in left_a.values():  # the first that can be compared; what is inside a fusion cannot
        for other, at in reversed(left_b.values()):
            if _form(other, at) == _form(call, position):
                return OtherResult(call, position, other, at)
    call, position = next(iter(left_a.values()))
    return OtherResult(call, position, b[0], None)


def _other_value_of_a_node(a: list[KernelCall], b: list[KernelCall]) -> OtherResult | None:
    of_a, of_b = _by_node(a), _by_node(b)
    for node, (call, position) in of_a.items():
        other, at = of_b.get(node, (None, -1))
        if other is None or _form(other, at) != _form(call, position):
            continue
        if not same_hash(call.post_hashes[position], other.post_hashes[at]):
            return OtherResult(call, position, other, at)
    return None


def _by_node(calls: list[KernelCall]) -> dict[Any, tuple[KernelCall, int]]:
    """Who left the value of which FX node, where; of runs with stages."""
    found: dict[Any, tuple[KernelCall, int]] = {}
    for call in calls:
        graph = call.graph
        staged = call.run.stages_of(graph)
        if staged is None or graph is None:
            continue
        for i in sorted(call.modified_args):
            node = staged.held.get(call.wrapper_names[i])
            if node is not None and i in call.post_hashes:
                found[graph.compile_id, graph.direction, node] = call, i
    return found


def _form(call: KernelCall, position: int) -> Any:
    tensor = call.arguments[position].tensor
    return None if tensor is None else (tuple(tensor.shape), tensor.dtype)


def other_site(a: KernelCall, b: KernelCall) -> tuple[str, str] | None:
    """How two calls at the same place differ in code, arguments or settings, whatever their values."""
    if (other := other_code(a, b)) is not None:
        return DIFFERENT_KERNEL, other
    if a.arg_names != b.arg_names:
        return DIFFERENT_KERNEL, f"{a.kernel_name} has different arguments: {_listed(a)} and {_listed(b)}"
    if (other := unlike(launch_settings(a), launch_settings(b))) is not None:
        return DIFFERENT_CONFIG, other
    return None


def _listed(call: KernelCall) -> str:
    return ", ".join(call.arg_names) or "none"
