"""The CUDA engine of level "stats": bits and statistics of all contiguous tensors of a call in one launch.

A kernel is compiled for each set of dtypes that comes along in one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import torch

from . import cuda, hashes
from .definition import DTYPE_CODES
from .log import Rows
from .stats import NUMBERLESS, ROW_LENGTH

_BLOCK = 256
# How many programs a tensor gets, and so in which order its numbers are added, depends on its size alone.
_BYTES_A_PROGRAM = 8 * 8 * _BLOCK  # from here on it gets another …
_PROGRAMS_AT_MOST = 132 * 5  # … up to here …
_BYTES_AT_MOST = 4 << 20  # … unless one would then have more than this: sums of bytes must fit 32 bits
_TILE_ROWS, _TILE_WORDS = 32, 8
_TILES_AT_MOST = 2048

CODES = {dtype: DTYPE_CODES[name] for dtype, name in hashes.DTYPE_NAMES.items() if name not in NUMBERLESS}


# Where the kernels put sums, rows of statistics, and what so many programs tell each other.
Places: TypeAlias = Callable[[int], tuple[int, int, int]]


def accumulate(tensors: Sequence[torch.Tensor], log: Rows, first: int) -> list[bool]:
    """Enqueue sums and statistics of these tensors into the log's rows from `first` on.

    Tells for each whether it could be done; conjugate and negative views are left to the caller.
    """
    device = log.device.index
    if torch._C._cuda_getDevice() != device:
        with torch.cuda.device(device):
            return accumulate(tensors, log, first)
    kernels = engine(device)
    stream = torch._C._cuda_getCurrentRawStream(device)
    done: list[bool] = []
    batch: list[int] = []
    programs, row = 0, first
    for position, tensor in enumerate(tensors):
        nbytes = tensor.nbytes
        address = hashes.address(tensor)
        code = CODES.get(tensor.dtype, 0)
        if not code:
            done += cuda.accumulate([tensor], log.address(first + position), device)
            nbytes = 0  # it keeps its place in the batch, with nothing to do there
        elif tensor.is_conj() or tensor.is_neg():
            done.append(False)
            nbytes = 0
        elif tensor.is_contiguous():
            done.append(True)
        else:
            layout = cuda.Layout(tensor.shape, tensor.stride(), tensor.element_size())
            places = _places_in(log, first + position, stream)
            done.append(kernels.strided(layout, address, code, places, stream))
            nbytes = 0
        programs += programs_for(nbytes)
        batch += (address, nbytes, programs, code)
        if len(batch) == 4 * kernels.at_once:
            kernels.flat(batch, programs, _places_in(log, row, stream), stream)
            row, batch, programs = first + position + 1, [], 0
    kernels.flat(batch, programs, _places_in(log, row, stream), stream)
    return done


def _places_in(log: Rows, row: int, stream: int) -> Places:
    return lambda programs: (log.address(row), log.stats_address(row), log.scratch(stream, programs))


def programs_for(nbytes: int) -> int:
    if not nbytes:
        return 0
    return max(min(nbytes // _BYTES_A_PROGRAM, _PROGRAMS_AT_MOST), -(-nbytes // _BYTES_AT_MOST), 1)


def programs_of(layout: cuda.Layout) -> int:
    """Those that share the work on a tensor that has a launch of its own."""
    programs = programs_for(layout.nbytes)
    if layout.is_flat or not layout.is_transposed:
        return programs
    row_words, _, rows, _, count, _, _ = layout.transposed_numbers
    tiles = count * -(-rows // _TILE_ROWS) * -(-row_words // _TILE_WORDS)
    # Narrow tiles leave lanes idle, and the others must not get too much either.
    return min(tiles, max(programs, -(-tiles // _TILES_AT_MOST)))


@cache
def engine(device: int) -> _Engine:
    return _Engine()


class _Engine:
    """The kernels, compiled for the current device when they are first needed."""

    def __init__(self) -> None:
        from . import cuda_stats_kernels as kernels

        self.at_once = kernels.TENSORS_AT_ONCE
        self._flat = _compiler(kernels.flat, 3 + 4 * self.at_once)
        self._strided = _compiler(kernels.strided, 17)
        self._transposed = _compiler(kernels.transposed, 11)

    def flat(self, batch: list[int], programs: int, places: Places, stream: int) -> None:
        """Of each tensor its address, bytes, last program + 1 and dtype code."""
        if programs:
            misaligned = any(
                address % 8 for address, nbytes in zip(batch[::4], batch[1::4], strict=True) if nbytes
            )
            kernel, rest = self.flat_kernel(batch, programs, misaligned)
            cuda._launch(kernel, programs, stream, (*places(programs), *batch, *rest))

    def flat_kernel(self, batch: list[int], programs: int, misaligned: bool) -> tuple[Any, list[int]]:
        """The kernel for such a batch, and what it is given after it."""
        kinds = 0
        for nbytes, code in zip(batch[1::4], batch[3::4], strict=True):
            kinds |= 1 << code if nbytes else 0
        how = {"KINDS": kinds, "MISALIGNED": misaligned, "BLOCK": _BLOCK, "ROW": ROW_LENGTH}
        unused = [0, 0, programs, 0] * (self.at_once - len(batch) // 4)
        return self._flat(**how), [*unused, *how.values()]

    def strided(self, layout: cuda.Layout, address: int, code: int, places: Places, stream: int) -> bool:
        """One tensor that is not contiguous."""
        nbytes, programs = layout.nbytes, programs_of(layout)
        if not nbytes:
            return True
        if layout.is_transposed:
            how = {"KIND": code, "ROWS": _TILE_ROWS, "WORDS": _TILE_WORDS}
            args = (*places(programs), address, *layout.transposed_numbers, *how.values())
            cuda._launch(self._transposed(**how), programs, stream, args)
            return True
        dims = layout.dims_in_bytes
        if len(dims) > cuda._DIMENSIONS:
            return False
        width = cuda._width(address, dims)
        (run, _), *outer = dims
        numbers = [n for dim in [(run // width, width), *outer] for n in dim]
        numbers += (1, 0) * (cuda._DIMENSIONS - len(dims))
        how = {"KIND": code, "WIDTH": width, "DIMS": min(len(dims), 5)}
        how |= {"NUMBER": cuda._index_type(nbytes), "BLOCK": _BLOCK}
        args = (*places(programs), address, nbytes, *numbers, *how.values())
        cuda._launch(self._strided(**how), programs, stream, args)
        return True


def _compiler(kernel: Any, numbers: int) -> Callable[..., Any]:
    return cache(lambda **how: cuda._compiled(kernel, [0] * numbers, **how))
