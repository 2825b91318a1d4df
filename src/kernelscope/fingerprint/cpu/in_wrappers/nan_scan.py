"""Looks for NaN and infinities in CPU tensors, in C++: one call for all that a launch left."""

from __future__ import annotations

import math
import os
import struct
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelscope.native.load import OnDemand, python_module

from .runs import Runs, runs_of

_MODULE = "kernelscope_nan_scan"  # as the C++ says
_F32 = 0
NAN, POS_INF, NEG_INF = 1, 2, 4

Scan = tuple[int, Runs, int]  # place of the tensor, its memory, its kind (as the GPU's scan has them)
Copy = tuple[int, Runs, int]  # place of the tensor, its memory, the address that it is copied to, gaps kept


class NanScanLibrary:
    """One loaded library."""

    NAME = "cpu-nan-scan"
    SOURCE = Path(__file__).with_name("nan_scan.cpp")
    FLAGS: tuple[str, ...] = (f"-I{sysconfig.get_path('include')}",)

    def __init__(self, library: Path) -> None:
        self._module = python_module(_MODULE, library)
        # An OpenMP runtime that was used before a fork waits forever for its threads in the child.
        self._forked = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True
        self._module.use_threads(1)

    def look(
        self,
        scans: Sequence[Scan],
        copies: Sequence[Copy],
        wanted: int,
        carefully: Callable[..., None],
        found: Callable[..., None],
    ) -> Callable[..., None]:
        """All of this as one function of an execution and tensors; `found` gets the same as that."""
        self._module.use_threads(1 if self._forked else torch.get_num_threads())
        modes = torch._C._len_torch_function_stack
        made: Callable[..., None] = self._module.Look(
            tuple((place, runs.nbytes, kind, 0, runs.levels) for place, runs, kind in scans),
            tuple((place, runs.nbytes, 0, address, runs.levels) for place, runs, address in copies),
            wanted,
            modes,
            carefully,
            found,
        )
        return made

    def computes(self) -> bool:
        """Whether it finds what there is, and copies."""
        hits: list[Any] = []
        every_second = runs_of([2, 2], [2, 4], 4)
        for value, is_there in ((math.nan, True), (math.inf, True), (-math.inf, False), (3e38, False)):
            given = bytearray(struct.pack("8f", 1.0, math.nan, value, math.nan, 0.0, 0.0, 2.0, math.nan))
            memory, into = _Memory(given), _Memory(bytearray(len(given)))
            hits.clear()
            look = self.look(
                [(0, every_second, _F32)],
                [(0, every_second, into.data_ptr())],
                NAN | POS_INF,
                lambda *tensors: None,
                lambda *tensors: hits.append(tensors),
            )
            look("execution", memory)
            if bool(hits) != is_there or into.content != struct.pack("8f", 1, 0, value, 0, 0, 0, 2, 0):
                return False
        return True


class _Memory:
    def __init__(self, content: bytearray) -> None:
        import ctypes

        self.content = content
        self._at = ctypes.addressof((ctypes.c_char * len(content)).from_buffer(content))

    def data_ptr(self) -> int:
        return self._at


LIBRARY = OnDemand(NanScanLibrary)
