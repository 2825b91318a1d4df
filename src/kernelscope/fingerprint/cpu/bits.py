"""`bits` of CPU tensors in C++. Where there is no compiler, torch operations give the same numbers."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelscope.fingerprint.definition import MASK64, POSITION, mix
from kernelscope.native.load import OnDemand

from .library import BYTES_PER_THREAD, MAX_DIMS, CpuLibrary, address_of, pack_layout

_data_address = torch._C._data_address  # type: ignore[attr-defined]


class BitsLibrary(CpuLibrary):
    NAME = "cpu-bits"
    SOURCE = Path(__file__).with_name("bits.cpp")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        address, size, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
        self._sum_small, self._sum_large = self._functions("kernelscope_sum", [address, size, number])
        self._strided_small, self._strided_large = self._functions(
            "kernelscope_sum_strided", [address, size, number, ctypes.c_char_p, number]
        )

        self.address, self.strided_address = (address_of(f) for f in (self._sum_small, self._strided_small))

    def accumulate(self, tensor: torch.Tensor) -> int | None:
        nbytes: int = tensor.nbytes
        if tensor.is_neg() or tensor.is_conj():
            return None
        # Not data_ptr(), which would turn a copy-on-write tensor into a real copy.
        address = _data_address(tensor) + tensor.storage_offset() * tensor.itemsize
        if tensor.is_contiguous():
            if nbytes < 2 * BYTES_PER_THREAD:
                return self._sum_small(address, nbytes, 1)
            return self._sum_large(address, nbytes, self._threads(nbytes))
        dims = tensor.dim()
        if dims > MAX_DIMS:
            return None
        layout = pack_layout[dims](*tensor.shape, *tensor.stride())
        if nbytes < 2 * BYTES_PER_THREAD:
            return self._strided_small(address, tensor.itemsize, dims, layout, 1)
        threads = self._threads(nbytes)
        return self._strided_large(address, tensor.itemsize, dims, layout, threads)

    def sum_of(
        self, shape: Sequence[int], stride: Sequence[int], itemsize: int, is_flat: bool
    ) -> Callable[[int], int] | None:
        """The sum of a tensor of this layout, given its address; None for too many dimensions."""
        nbytes = math.prod(shape) * itemsize
        is_small = nbytes < 2 * BYTES_PER_THREAD
        if not nbytes:
            return lambda address: 0
        if is_flat:
            flat = self._sum_small if is_small else self._sum_large
            return lambda address: flat(address, nbytes, self._threads(nbytes) or 1)
        dims = len(shape)
        if dims > MAX_DIMS:
            return None
        layout = pack_layout[dims](*shape, *stride)
        strided = self._strided_small if is_small else self._strided_large
        return lambda address: strided(address, itemsize, dims, layout, self._threads(nbytes) or 1)

    def computes(self) -> bool:
        """Whether it agrees with the definition, on plain memory: this may run inside any torch mode."""
        count = 100
        expected = sum(mix(i ^ (i + 1) * POSITION & MASK64) for i in range(count)) & MASK64
        words = (ctypes.c_uint64 * count)(*range(count))
        pairs = (ctypes.c_uint64 * (2 * count))(*(i // 2 for i in range(2 * count)))
        every_second = pack_layout[1](count, 2)
        flat = self._sum_small(ctypes.addressof(words), 8 * count, 1)
        return flat == self._strided_small(ctypes.addressof(pairs), 8, 1, every_second, 1) == expected


LIBRARY = OnDemand(BitsLibrary)


def accumulate(tensor: torch.Tensor) -> int | None:
    """The definition's sum over the words of a plain CPU tensor, before the salt and the last mix.

    None when there is no library, or a lazy conjugate or negation would have to be resolved.
    """
    found = LIBRARY.loaded or LIBRARY.get()
    return None if found is None else found.accumulate(tensor)
