"""Planned fingerprints of CPU tensors, taken by C++: one call for all that a statement hands over."""

from __future__ import annotations

import os
import struct
import sysconfig
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernelscope.fingerprint.cpu.library import BYTES_PER_THREAD
from kernelscope.fingerprint.definition import mix
from kernelscope.native.load import OnDemand, python_module

_MODULE = "kernelscope_planned"  # as the C++ says


class Piece(NamedTuple):
    """A tensor to fingerprint, up to its address."""

    place: int  # among the tensors of the call
    row: int  # among those of the execution
    nbytes: int
    itemsize: int
    dims: int
    code: int  # of the dtype, for statistics; -1: bits alone
    layout: bytes  # sizes and strides; empty: contiguous
    salt: int
    is_large: bool  # the GIL is given up, and threads share the work


class Functions(NamedTuple):
    """Addresses of what reads memory, in the libraries of bits and statistics; 0: not there."""

    sum: int
    sum_strided: int
    sum_with_stats: int


class PlannedLibrary:
    """One loaded library."""

    NAME = "cpu-planned"
    SOURCE = Path(__file__).with_name("planned.cpp")
    FLAGS: tuple[str, ...] = (f"-I{sysconfig.get_path('include')}",)

    def __init__(self, library: Path) -> None:
        self._module = python_module(_MODULE, library)
        self._module.share(BYTES_PER_THREAD)
        os.register_at_fork(after_in_child=self._module.forked)

    def take(
        self, pieces: Sequence[Piece], functions: Functions, log: Any, carefully: Callable[..., None]
    ) -> Callable[..., None]:
        """A function of an execution, whose first item is its first row, and tensors; fills the log's rows.

        `carefully` gets the same where something is out of the ordinary.
        """
        modes, threads = torch._C._len_torch_function_stack, torch.get_num_threads
        made: Callable[..., None] = self._module.Take(
            tuple(map(tuple, pieces)), *functions, modes, carefully, log, threads
        )
        return made

    def computes(self) -> bool:
        """Whether it fills the rows that it should, with a function of ours in the place of the sum."""
        import ctypes

        sums = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int)
        at, strange = struct.Struct("Q"), []
        count = sums(lambda address, nbytes, threads: at.unpack(ctypes.string_at(address, 8))[0] + nbytes)
        address = ctypes.cast(count, ctypes.c_void_p).value or 0
        log = _Log()
        pieces = [Piece(place, 1 - place, 8, 8, 1, -1, b"", 5 + place, False) for place in range(2)]
        take = self.take(pieces, Functions(address, 0, 0), log, lambda *given: strange.append(given))
        values = [(ctypes.c_uint64 * 1)(7 + i) for i in range(2)]
        take((11,), *(_At(ctypes.addressof(value)) for value in values))
        take((11,), _At(ctypes.addressof(values[0])), _At(0))
        return list(log._bits) == [0, mix(16 ^ 6), mix(15 ^ 5), 0] and len(strange) == 1


class _Log:
    def __init__(self) -> None:
        self._forgotten = 10
        self._bits = array("Q", bytes(32))
        self._stats = array("d")


class _At:
    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


LIBRARY = OnDemand(PlannedLibrary)
