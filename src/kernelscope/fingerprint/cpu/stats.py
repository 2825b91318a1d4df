"""Level "stats" of CPU tensors in C++: bits and statistics in one pass.

A library of its own: a program that only needs bits does not wait for it to compile.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelscope.fingerprint import torch_bits
from kernelscope.fingerprint.definition import DTYPE_CODES, MASK64, POSITION, mix
from kernelscope.fingerprint.stats import NUMBERLESS, ROW_LENGTH
from kernelscope.native.load import OnDemand

from .library import BYTES_PER_THREAD, MAX_DIMS, CpuLibrary, address_of, pack_layout

_CODES = {
    dtype: DTYPE_CODES[name] for dtype, name in torch_bits.DTYPE_NAMES.items() if name not in NUMBERLESS
}
_ROW = struct.Struct(f"{ROW_LENGTH}d")

Row = tuple[float, ...]


class StatsLibrary(CpuLibrary):
    NAME = "cpu-stats"
    SOURCE = Path(__file__).with_name("stats.cpp")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        address, size, number, memory = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
        arguments = [address, size, size, number, memory, number, number, memory]
        self._small, self._large = self._functions("kernelscope_stats", arguments)
        self.address = address_of(self._small)

    def accumulate(self, tensor: torch.Tensor) -> tuple[int, Row] | None:
        code = _CODES.get(tensor.dtype)
        dims = tensor.dim()
        if code is None or tensor.is_neg() or tensor.is_conj() or dims > MAX_DIMS:
            return None
        # The library cuts a tensor into rows, and an empty one has none.
        contiguous = tensor.is_contiguous() or tensor.numel() == 0
        layout = None if contiguous else pack_layout[dims](*tensor.shape, *tensor.stride())
        return self._call(torch_bits.address(tensor), tensor.nbytes, tensor.itemsize, dims, layout, code)

    def row_of(
        self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, is_flat: bool
    ) -> Callable[[int], tuple[int, Row]] | None:
        """The same for a tensor of this layout, given its address; None where `accumulate` gives None."""
        code, dims = _CODES.get(dtype), len(shape)
        if code is None or dims > MAX_DIMS:
            return None
        nbytes, itemsize = math.prod(shape) * dtype.itemsize, dtype.itemsize
        layout = None if is_flat or not nbytes else pack_layout[dims](*shape, *stride)
        return lambda address: self._call(address, nbytes, itemsize, dims, layout, code)

    def _call(
        self, address: int, nbytes: int, itemsize: int, dims: int, layout: bytes | None, code: int
    ) -> tuple[int, Row]:
        row = ctypes.create_string_buffer(_ROW.size)
        if nbytes < BYTES_PER_THREAD:
            total = self._small(address, nbytes, itemsize, dims, layout, code, 1, row)
        else:
            threads = self._threads(nbytes)
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


def code_of(dtype: torch.dtype) -> int:
    """By which the library knows this dtype; -1 where it has no numbers."""
    return _CODES.get(dtype, -1)


LIBRARY = OnDemand(StatsLibrary)


def accumulate(tensor: torch.Tensor) -> tuple[int, Row] | None:
    """The definition's sum and the row of statistics of a plain CPU tensor that has numbers.

    None when there is no library, or a lazy conjugate or negation would have to be resolved.
    """
    found = LIBRARY.loaded or LIBRARY.get()
    return None if found is None else found.accumulate(tensor)
