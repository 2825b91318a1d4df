"""Acting between two steps of a function, where another thread might run."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


@contextmanager
def acting_at_step(module: ModuleType, number: int, do: Callable[[], None]) -> Iterator[None]:
    """Inside the block, when code of this module gets to its bytecode instruction of that number, `do`."""
    steps = itertools.count()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(steps) == number:
            do()
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # else Python 3.12 tells of none the first time
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
