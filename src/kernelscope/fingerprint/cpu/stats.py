"""The fast engine for level "stats" of CPU tensors: built, kept and refused like the one for `bits`.

A library of its own, so that somebody who only hashes does not wait for it to compile.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint.definition import DTYPE_CODES, MASK64, POSITION, mix
from kernelscope.fingerprint.stats import NUMBERLESS, ROW_LENGTH

from . import engine as cpu

SOURCE = Path(__file__).with_name("stats.cpp")

_CODES = {dtype: DTYPE_CODES[name] for dtype, name in hashes.DTYPE_NAMES.items() if name not in NUMBERLESS}
_ROW = struct.Struct(f"{ROW_LENGTH}d")

Row = tuple[float, ...]


class StatsEngine:
    """One loaded library."""

    NAME = "cpu-stats"
    SOURCES: tuple[Path, ...] = (SOURCE, cpu.SOURCE)
    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        # As in cpu.py: a short call keeps the GIL, and an OpenMP runtime does not survive a fork.
        self._large, self._small = _function(ctypes.CDLL(str(library))), _function(ctypes.PyDLL(str(library)))
        self._forked = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True

    def accumulate(self, tensor: torch.Tensor) -> tuple[int, Row] | None:
        code = _CODES.get(tensor.dtype)
        dims = tensor.dim()
        if code is None or tensor.is_neg() or tensor.is_conj() or dims > cpu.MAX_DIMS:
            return None
        # The engine cuts a tensor into rows, and an empty one has none.
        contiguous = tensor.is_contiguous() or tensor.numel() == 0
        layout = None if contiguous else cpu._PACK[dims](*tensor.shape, *tensor.stride())
        return self._call(hashes.address(tensor), tensor.nbytes, tensor.itemsize, dims, layout, code)

    def _call(
        self, address: int, nbytes: int, itemsize: int, dims: int, layout: bytes | None, code: int
    ) -> tuple[int, Row]:
        row = ctypes.create_string_buffer(_ROW.size)
        if nbytes < cpu.BYTES_PER_THREAD:
            total = self._small(address, nbytes, itemsize, dims, layout, code, 1, row)
        else:
            threads = 1 if self._forked else cpu.threads_for(nbytes)
            total = self._large(address, nbytes, itemsize, dims, layout, code, threads, row)
        return total, _ROW.unpack(row.raw)

    def computes(self) -> bool:
        """Whether it is right about plain memory: this may run inside any torch mode."""
        count = 100
        words = (ctypes.c_int64 * count)(*range(count))
        expected = sum(mix(i ^ (i + 1) * POSITION & MASK64) for i in range(count)) & MASK64
        total, row = self._call(ctypes.addressof(words), 8 * count, 8, 1, None, DTYPE_CODES["int64"])
        low, high, mean, std, *rest = row
        right = (low, high, mean) == (0, 99, 49.5) and math.isclose(std, math.sqrt((count**2 - 1) / 12))
        return total == expected and right and rest == [4950, 0, 0, 0, 1]


def _function(library: ctypes.CDLL) -> Callable[..., int]:
    function = library.kernelscope_stats
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int),
        *(ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p),
    ]
    function.restype = ctypes.c_uint64
    return function


_lock = threading.Lock()
_engine: StatsEngine | None = None
_reason: str | None = None  # None: not tried yet
_uncached = ""


def accumulate(tensor: torch.Tensor) -> tuple[int, Row] | None:
    """The definition's sum and the row of statistics of a plain CPU tensor that has numbers.

    None when there is no engine, or a lazy conjugate or negation would have to be resolved.
    """
    if _engine is not None:
        return _engine.accumulate(tensor)
    return None if available() else accumulate(tensor)


def available() -> str:
    """Empty when the engine works, otherwise why it does not; the first call may compile for some seconds."""
    global _engine, _reason, _uncached
    if _reason is None:
        with _lock:
            if _reason is None:
                try:
                    _engine, _uncached = cpu.start(StatsEngine)
                    _reason = ""
                except cpu.EngineError as error:
                    _reason = str(error)
    return _reason


def uncached() -> str:
    """Why the engine had to be compiled for this process alone; empty when it is kept, or there is none."""
    available()
    return _uncached
