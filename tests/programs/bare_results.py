"""What torch alone makes of a random program: tells a bug of Inductor from a false alarm."""

from __future__ import annotations

import itertools

import torch
from tests.programs.random_views import RandomProgram


def has_other_aliases(program: RandomProgram) -> bool:
    """Whether compiled results share memory where eager's do not: a write to one would change the other.

    Inductor writes what is joined (cat, stack) right into its slice of the whole; a view of such a part
    that is returned beside a view of the whole then lies in the same memory.
    """
    torch._dynamo.reset()
    compiled = torch.compile(program.function(), dynamic=program.dynamic)
    return _shared(program, compiled) != _shared(program, program.function())


def _shared(program: RandomProgram, function: object) -> list[tuple[int, int]]:
    inputs = program.copied_inputs()
    tensors = [*function(*inputs), *inputs]  # type: ignore[operator]
    addresses = [t.untyped_storage().data_ptr() for t in tensors]
    pairs = itertools.combinations(range(len(tensors)), 2)
    return [(i, j) for i, j in pairs if addresses[i] == addresses[j]]
