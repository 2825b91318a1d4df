"""The program's random numbers, kept where work of our own may draw some."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kernelscope.determinism.state import torch_generators


@contextmanager
def untouched_random_numbers() -> Iterator[None]:
    """The program draws the same numbers after the block as without it."""
    if torch._C._functorch.peek_interpreter_stack():
        yield
        return
    states = [(generator, generator.get_state()) for generator in torch_generators()]
    try:
        yield
    finally:
        for generator, state in states:
            if _bytes(state) != _bytes(generator.get_state()):
                generator.set_state(state)


def _bytes(state: torch.Tensor) -> bytes:
    """Compared in a third of the time that `torch.equal` takes: this is done at every launch."""
    return ctypes.string_at(state.data_ptr(), state.nbytes)


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Inside, the same numbers are drawn for the same number."""
    with untouched_random_numbers():
        for generator in torch_generators():
            generator.manual_seed(number)
        yield
