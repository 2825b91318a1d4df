"""The CUDA engine of level "stats": bits and statistics of all contiguous tensors of a call in one launch.

Of other tensors the statistics are taken in the order of memory, and the bits as at level "hash". A kernel is
compiled for each set of dtypes that comes along in one launch.
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
from .engine import Layout
from .stats_batches import AT_ONCE, UNHASHED, Batch, programs_for

_WARPS = 8
_REGISTERS = 128  # so that as many programs fit on the device

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
    batch = Batch()
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
            batch.add(address, tensor.nbytes, code, row)
        else:
            layout = Layout(tensor.shape, tensor.stride(), tensor.element_size()).in_memory_order
            if layout.is_flat:
                batch.add(address, layout.nbytes, code + UNHASHED, row)
            else:
                done[-1] &= kernels.strided(layout, address, code, row, places, stream)
        if len(batch.tensors) == AT_ONCE:
            kernels.flat(batch, places, stream)
            batch = Batch()
    if batch.tensors:
        kernels.flat(batch, places, stream)
    return done


@cache
def engine(device: int) -> _Engine:
    return _Engine(device)


class _Engine:
    """The kernels, compiled for the current device when they are first needed."""

    def __init__(self, device: int) -> None:
        from .kernels import records as cuda_records
        from .kernels import stats as kernels

        self._hopper = cuda.is_hopper(device)
        self._flat = _compiler(kernels.flat, 3 + 6 * AT_ONCE)
        self._strided = _compiler(kernels.strided, 19)
        self._merge = _compiler(cuda_records.merge, 3)

    def flat(self, batch: Batch, places: Places, stream: int, *, later: bool = False) -> None:
        misaligned = any(tensor[0] % 8 for tensor in batch.tensors)
        kernel, how = self.flat_kernel(batch, misaligned, later=later)
        cuda._launch(kernel, batch.programs, stream, (*places(batch.programs), *batch.numbers, *how))

    def flat_kernel(self, batch: Batch, misaligned: bool, *, later: bool) -> tuple[Any, list[int]]:
        """The kernel for a batch, and the constants that Python passes to it."""
        how = {
            "KINDS": batch.kinds,
            "MISALIGNED": misaligned,
            "BLOCK": cuda_stats_batches.BLOCK,
            "ROW": ROW_LENGTH,
        }
        how |= {"HOPPER": self._hopper, "LATER": later}
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
        found = self.strided_kernel(layout, address, code, later=later)
        if found is None:
            return False
        kernel, programs, numbers, how = found
        cuda._launch(kernel, programs, stream, (*places(programs), row, record, address, *numbers, *how))
        return True

    def strided_kernel(
        self, layout: Layout, address: int, code: int, *, later: bool
    ) -> tuple[Any, int, list[int], list[Any]] | None:
        """The kernel for a tensor at this address or one like it; programs, numbers, constants for Python."""
        dims = layout.dims_in_bytes
        if len(dims) > cuda._DIMENSIONS:
            return None
        width = cuda._width(address, dims)
        (run, _), *outer = dims
        numbers = [layout.nbytes, *(n for dim in [(run // width, width), *outer] for n in dim)]
        numbers += (1, 0) * (cuda._DIMENSIONS - len(dims))
        how = {"KIND": code, "WIDTH": width, "DIMS": min(len(dims), 5)}
        how |= {
            "NUMBER": cuda._index_type(layout.nbytes),
            "BLOCK": cuda_stats_batches.BLOCK,
            "ROW": ROW_LENGTH,
        }
        how |= {"HOPPER": self._hopper, "LATER": later}
        return self._strided(**how), programs_for(layout.nbytes), numbers, list(how.values())

    def merge_kernel(self) -> tuple[Any, list[Any]]:
        how = {"ROW": ROW_LENGTH, "HOPPER": self._hopper}
        return self._merge(**how), list(how.values())


def _compiler(kernel: Any, numbers: int) -> Callable[..., Any]:
    def compiled(**how: Any) -> Any:
        options = {"num_warps": _WARPS, "maxnreg": _REGISTERS}
        if how["HOPPER"] and not how.get("LATER", True):  # those for LATER are started by our own launcher
            options["launch_pdl"] = True
        return cuda._compiled(kernel, [0] * numbers, **how, **options)

    return cache(compiled)
