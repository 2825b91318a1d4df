"""What the C++ libraries of the CPU engine have in common: how they are called, and with how many threads."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

# Below this a call takes less than switching threads does: no second thread, and the GIL is kept.
BYTES_PER_THREAD = 64 << 10
MAX_DIMS = 64

# Sizes and strides as bytes: a third of what making a ctypes array costs.
pack_layout = [struct.Struct(f"{2 * dims}q").pack for dims in range(MAX_DIMS + 1)]


def threads_for(nbytes: int) -> int:
    return min(torch.get_num_threads(), nbytes // BYTES_PER_THREAD)


def address_of(function: Any) -> int:
    """Of a function of a library, for C++ that is to call it."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class CpuLibrary:
    """One loaded library."""

    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        # Giving up the GIL for a microsecond can cost milliseconds when another thread runs Python.
        self._without_gil, self._with_gil = ctypes.CDLL(str(library)), ctypes.PyDLL(str(library))
        # An OpenMP runtime that was used before a fork waits forever for its threads in the child.
        self._forked = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True

    def _functions(self, name: str, arguments: Sequence[Any]) -> tuple[Callable[..., int], ...]:
        """A function for short calls, which keeps the GIL, and one for long calls."""
        functions = getattr(self._with_gil, name), getattr(self._without_gil, name)
        for function in functions:
            function.argtypes, function.restype = arguments, ctypes.c_uint64
        return functions

    def _threads(self, nbytes: int) -> int:
        return 1 if self._forked else threads_for(nbytes)
