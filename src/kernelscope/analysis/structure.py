"""Places where two runs have other calls: whether they come to the same."""

from __future__ import annotations

from typing import Any

from ..run.call import KernelCall
from .divergence import DIFFERENT_CONFIG, DIFFERENT_KERNEL
from .verdicts import launch_settings, other_code, unlike


def read_and_left(calls: list[KernelCall]) -> tuple[set[Any], dict[Any, tuple[KernelCall, str]]]:
    """The values that these calls took from outside, and those they left, with who left them."""
    read: set[Any] = set()
    left: dict[Any, tuple[KernelCall, str]] = {}
    for call in calls:
        read |= {value for value in call.pre_hashes.values() if value not in left}
        post = call.post_hashes
        left |= {post[i]: (call, call.arg_names[i]) for i in sorted(call.modified_args) if i in post}
    return read, left


def judge_gap(a: list[KernelCall], b: list[KernelCall]) -> tuple[KernelCall, str] | None:
    """The call of the first run whose result the second does not have, if that is certain.

    Another fusion keeps other intermediate values; that is no difference as long as what the coarser side
    left is among what the finer side left. Certain is: both read something in common, and left nothing.
    """
    read_a, left_a = read_and_left(a)
    read_b, left_b = read_and_left(b)
    if not left_a or not left_b or not read_a & read_b or left_a.keys() & left_b.keys():
        return None
    return next(iter(left_a.values()))


def other_site(a: KernelCall, b: KernelCall) -> tuple[str, str] | None:
    """How two calls at the same place differ in code or launch settings, whatever their values."""
    if (other := other_code(a, b)) is not None:
        return DIFFERENT_KERNEL, other
    if (other := unlike(launch_settings(a), launch_settings(b))) is not None:
        return DIFFERENT_CONFIG, other
    return None
