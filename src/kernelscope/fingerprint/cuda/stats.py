"""The CUDA engine of level "stats": bits and statistics of all contiguous tensors of a call in one launch.

Of other tensors the statistics are taken in the order of memory, and the bits as at level "hash". A kernel is
compiled for each dtype, and for each set of floating point numbers that comes along in one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import torch

from kernelscope.fingerprint import torch_bits as hashes
from kernelscope.fingerprint.definition import DTYPE_CODES
from kernelscope.fingerprint.log import Rows
from kernelscope.fingerprint.stats import NUMBERLESS, ROW_LENGTH

from . import engine as cuda
from . import stats_batches as cuda_stats_batches
from .building.kernel_files import Spec
from .engine import Layout
from .stats_batches import (
    FLAT_NUMBERS,
    MIXED,
    REGISTERS,
    STRIDED_NUMBERS,
    UNHASHED,
    WARPS,
    Batch,
    Batches,
    programs_for,
)

CODES = {dtype: DTYPE_CODES[name] for dtype, name in hashes.DTYPE_NAMES.items() if name not in NUMBERLESS}


# Where the kernels put sums, rows of statistics, and what so many programs tell each other.
Places: TypeAlias = Callable[[int], tuple[int, int, int]]


def accumulate(tensors: Sequence[torch.Tensor], log: Rows, first: int) -> list[bool]:
    """Enqueue sums and statistics of these tensors into the log's rows from `first` on.

    Gives for each whether it could be done; conjugate and negative views are left to the caller.
    """
    device = log.device.index
    if torch._C._cuda_getDevice() != device:
        with torch.cuda.device(device):
            return accumulate(tensors, log, first)
    kernels = engine(device)
    stream = torch._C._cuda_getCurrentRawStream(device)

    def places(programs: int) -> tuple[int, int, int]:
        return log.address(first), log.stats_address(first), log.scratch(stream, programs)

    done: list[bool] = []
    batches = Batches()
    for row, tensor in enumerate(tensors):
        code = CODES.get(tensor.dtype, 0)
        if tensor.is_conj() or tensor.is_neg():
            done.append(False)
            continue
        if not code or not tensor.is_contiguous():
            done += cuda.accumulate([tensor], log.address(first + row), device)
        else:
            done.append(True)
        if not code or not tensor.numel():
            continue
        address = hashes.address(tensor)
        if tensor.is_contiguous():
            full = batches.add(address, tensor.nbytes, code, row)
        else:
            layout, full = Layout(tensor.shape, tensor.stride(), tensor.element_size()).in_memory_order, None
            if layout.is_flat:
                full = batches.add(address, layout.nbytes, code + UNHASHED, row)
            else:
                done[-1] &= kernels.strided(layout, address, code, row, places, stream)
        if full is not None:
            kernels.flat(full, places, stream)
    for batch in batches:
        kernels.flat(batch, places, stream)
    return done


@cache
def engine(device: int) -> Engine:
    return Engine(device)


class Engine:
    """The kernels, compiled for the current device when they are first needed."""

    def __init__(self, device: int) -> None:
        from .kernels import records as cuda_records
        from .kernels import stats as kernels

        self._hopper = cuda.is_hopper(device)
        self._flat = _compiler(kernels.flat, FLAT_NUMBERS)
        self._strided = _compiler(kernels.strided, STRIDED_NUMBERS)
        self._merge = _compiler(cuda_records.merge, 3)

    def flat(self, batch: Batch, places: Places, stream: int, *, later: bool = False) -> None:
        misaligned = any(tensor[0] % 8 for tensor in batch.tensors)
        kernel, how = self.flat_kernel(batch, misaligned)
        args = (*places(batch.programs), *batch.numbers, int(later), *how)
        cuda.launch(kernel, batch.programs, stream, args)

    def flat_kernel(self, batch: Batch, misaligned: bool) -> tuple[Any, list[int]]:
        """The kernel for a batch, and the constants that Python passes to it."""
        how = how_flat(batch.kinds, misaligned, self._hopper)
        return self._flat(**how), list(how.values())

    def strided(
        self,
        layout: Layout,
        address: int,
        code: int,
        row: int,
        places: Places,
        stream: int,
        *,
        record: int = 0,
        later: bool = False,
    ) -> bool:
        """The statistics of one tensor with gaps."""
        found = self.strided_kernel(layout, address, code)
        if found is None:
            return False
        kernel, programs, numbers, how = found
        given = (row, record, address, *numbers, int(later), *how)
        cuda.launch(kernel, programs, stream, (*places(programs), *given))
        return True

    def strided_kernel(
        self, layout: Layout, address: int, code: int
    ) -> tuple[Any, int, list[int], list[Any]] | None:
        """The kernel for a tensor at this address or one like it; programs, numbers, constants for Python."""
        dims = layout.dims_in_bytes
        if len(dims) > cuda._DIMENSIONS:
            return None
        width = cuda._width(address, dims)
        (run, _), *outer = dims
        numbers = [layout.nbytes, *(n for dim in [(run // width, width), *outer] for n in dim)]
        numbers += (1, 0) * (cuda._DIMENSIONS - len(dims))
        number = cuda._index_type(layout.nbytes)
        how = _how_strided(code, width, min(len(dims), 5), number, self._hopper)
        return self._strided(**how), programs_for(layout.nbytes), numbers, list(how.values())

    def merge_kernel(self) -> tuple[Any, list[Any]]:
        how = {"ROW": ROW_LENGTH, "HOPPER": self._hopper}
        return self._merge(**how), list(how.values())


def how_flat(kinds: int, misaligned: bool, hopper: bool) -> dict[str, int]:
    how = {"KINDS": kinds, "MISALIGNED": misaligned, "BLOCK": cuda_stats_batches.BLOCK, "ROW": ROW_LENGTH}
    return how | {"HOPPER": hopper}


def _how_strided(code: int, width: int, dims: int, number: Any, hopper: bool) -> dict[str, Any]:
    how = {"KIND": code, "WIDTH": width, "DIMS": dims, "NUMBER": number}
    return how | {"BLOCK": cuda_stats_batches.BLOCK, "ROW": ROW_LENGTH, "HOPPER": hopper}


def kernels_for(code: int, hopper: bool) -> list[Spec]:
    """What is soon needed where there are tensors of this dtype."""
    float32 = 1 << CODES[torch.float32]
    sets = [1 << code, 1 << code | float32, float32] if code in MIXED else [1 << code]
    options = {"maxnreg": REGISTERS}
    flat = [how_flat(kinds, False, hopper) | options for kinds in dict.fromkeys(sets)]
    strided = [_how_strided(code, 8, dims, "uint32", hopper) | options for dims in (2, 3)]
    return [
        *(Spec.of("stats", "flat", FLAT_NUMBERS, how, WARPS) for how in flat),
        *(Spec.of("stats", "strided", STRIDED_NUMBERS, how, WARPS) for how in strided),
        Spec.of("records", "merge", 3, {"ROW": ROW_LENGTH, "HOPPER": hopper} | options, WARPS),
    ]


def _compiler(kernel: Any, numbers: int) -> Callable[..., Any]:
    def compiled(**how: Any) -> Any:
        kinds = how.get("KINDS", 1 << how.get("KIND", 0))
        found = [code for code in CODES.values() if kinds >> code & 1]
        related = [spec for code in found for spec in kernels_for(code, how["HOPPER"])]
        return cuda._compiled(
            kernel, [0] * numbers, **how, num_warps=WARPS, related=related, maxnreg=REGISTERS
        )

    return cache(compiled)
