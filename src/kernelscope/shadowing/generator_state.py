"""The program's random numbers, kept where work of our own may draw some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _generators() -> Iterator[torch.Generator]:
    """The CPU's, and every GPU's if the program uses CUDA already."""
    yield torch.default_generator
    cuda: Any = torch.cuda
    if cuda.is_initialized() and not cuda.is_current_stream_capturing():  # a capture forbids to read them
        yield from cuda.default_generators


@contextmanager
def untouched_random_numbers() -> Iterator[None]:
    """Numbers that are drawn inside are drawn again by the program: eager executes operators once more."""
    if torch._C._functorch.peek_interpreter_stack():
        yield
        return
    states = [(generator, generator.get_state()) for generator in _generators()]
    try:
        yield
    finally:
        for generator, state in states:
            if not torch.equal(state, generator.get_state()):
                generator.set_state(state)
