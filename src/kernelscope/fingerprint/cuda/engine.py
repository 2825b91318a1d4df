"""The CUDA engine: all tensors of a call in one launch, on the current stream, without waiting."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from kernelscope.fingerprint.cuda.building.kernel_files import Spec
from kernelscope.fingerprint.cuda.building.on_device import built
from kernelscope.fingerprint.torch_bits import address as address_of

_BLOCK = 512  # with more, a program has so many registers that too few programs fit on the device
WARPS = 4
_WORDS_A_PROGRAM = _BLOCK  # from here on a tensor gets another program …
_PROGRAMS_AT_MOST = 132 * 16  # … up to here; then each takes more
_DIMENSIONS = 6
_TILE_ROWS, _TILE_WORDS = 32, 16
AT_ONCE = 8  # tensors in a launch
_FLAT_NUMBERS, _STRIDED_NUMBERS, _TRANSPOSED_NUMBERS = 1 + 3 * AT_ONCE, 3 + 2 * _DIMENSIONS, 9


@cache
def unavailable() -> str:
    """Why the engine cannot be used; empty when it can."""
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    import triton

    return "TRITON_INTERPRET is set" if triton.knobs.runtime.interpret else ""


def accumulate(tensors: Sequence[torch.Tensor], log: int, device: int) -> list[bool]:
    """Enqueue the sums of these tensors into consecutive entries from the address `log` on.

    Gives for each whether it could be done; conjugate and negative views are left to the caller.
    """
    current = torch._C._cuda_getDevice()
    if current != device:
        with torch.cuda.device(device):
            return accumulate(tensors, log, device)
    kernels = engine(device)
    stream = torch._C._cuda_getCurrentRawStream(device)
    done: list[bool] = []
    batch: list[int] = []
    programs = 0
    entry = log
    for position, tensor in enumerate(tensors):
        nbytes = tensor.nbytes
        address = address_of(tensor)
        if tensor.is_conj() or tensor.is_neg():
            done.append(False)
            nbytes = 0
        elif tensor.is_contiguous():
            done.append(True)
        else:
            layout = Layout(tensor.shape, tensor.stride(), tensor.element_size())
            done.append(kernels.strided(layout, address, log + 8 * position, stream))
            nbytes = 0  # it keeps its place in the batch, with nothing to do there
        programs += _programs_of_flat(nbytes)
        batch += (address, nbytes, programs)
        if len(batch) == 3 * kernels.at_once:
            if programs:
                kernels.flat(batch, programs, entry, stream)
            entry, batch, programs = log + 8 * (position + 1), [], 0
    if programs:
        kernels.flat(batch, programs, entry, stream)
    return done


@cache
def engine(device: int) -> Engine:
    return Engine()


class Engine:
    """The kernels, compiled for the current device once and then launched without Triton's own dispatch."""

    def __init__(self) -> None:
        from .kernels import bits as cuda_kernels

        self.at_once = AT_ONCE
        numbers = [0] * _FLAT_NUMBERS
        # A kernel of its own for misaligned tensors: the shifting costs the others a tenth of their speed.
        self._flat = cache(lambda **how: _compiled(cuda_kernels.flat, numbers, BLOCK=_BLOCK, **how))
        self._strided = cache(lambda **how: _compiled(cuda_kernels.strided, [0] * _STRIDED_NUMBERS, **how))
        turned = [0] * _TRANSPOSED_NUMBERS
        self._transposed = cache(lambda **how: _compiled(cuda_kernels.transposed, turned, **how))

    def flat(self, batch: list[int], programs: int, log: int, stream: int) -> None:
        misaligned = any(address % 8 for address in batch[::3])
        batch += (0, 0, programs) * (self.at_once - len(batch) // 3)
        launch(self._flat(MISALIGNED=misaligned), programs, stream, (log, *batch, _BLOCK, misaligned))

    def strided(self, layout: Layout, address: int, log: int, stream: int) -> bool:
        if not layout.nbytes:
            return True
        found = self.for_layout(layout, address)
        if found is None:
            return False
        kernel, numbers, how = found
        launch(kernel, layout.programs, stream, (log, address, *numbers, *how))
        return True

    def for_layout(self, layout: Layout, address: int) -> tuple[Any, Sequence[int], Sequence[Any]] | None:
        """The kernel for a tensor that is not contiguous, what it must know of it, and its constants.

        Of the address only its alignment matters.
        """
        if layout.is_transposed:
            how = _how_transposed(layout.itemsize, layout.is_paired and address % 4 == 0)
            return self._transposed(**how), layout.transposed_numbers, tuple(how.values())
        dims = layout.dims_in_bytes
        if len(dims) > _DIMENSIONS:
            return None
        width = _width(address, dims)
        (run, _), *outer = dims
        numbers = [n for dim in [(run // width, width), *outer] for n in dim]
        numbers += (1, 0) * (_DIMENSIONS - len(dims))
        how = _how_strided(width, min(len(dims), 5), _index_type(layout.nbytes))
        return self._strided(**how), [layout.nbytes, *numbers], tuple(how.values())


def _how_transposed(width: int, paired: bool) -> dict[str, int]:
    return {"WIDTH": width, "ROWS": _TILE_ROWS, "WORDS": _TILE_WORDS, "PAIRED": paired}


def _how_strided(width: int, dims: int, number: Any) -> dict[str, Any]:
    return {"WIDTH": width, "DIMS": dims, "NUMBER": number, "BLOCK": _BLOCK}


def usual_kernels() -> list[Spec]:
    """Those that most programs need in the first execution of a graph."""
    strided = [_how_strided(width, dims, "uint32") for width in (8, 4, 2) for dims in (2, 3)]
    transposed = [_how_transposed(2, False), _how_transposed(2, True), _how_transposed(4, False)]
    return [
        Spec.of("bits", "flat", _FLAT_NUMBERS, {"BLOCK": _BLOCK, "MISALIGNED": False}, WARPS),
        *(Spec.of("bits", "strided", _STRIDED_NUMBERS, how, WARPS) for how in strided),
        *(Spec.of("bits", "transposed", _TRANSPOSED_NUMBERS, how, WARPS) for how in transposed),
    ]


class Layout:
    """How a tensor's elements lie, and what the kernels need of it."""

    def __init__(self, shape: Sequence[int], stride: Sequence[int], itemsize: int) -> None:
        self._shape, self._stride = tuple(shape), tuple(stride)
        self.itemsize = itemsize
        self.nbytes = math.prod(shape) * itemsize
        self.dims = dims = _collapsed(shape, stride)
        self.is_flat = not self.nbytes or (len(dims) == 1 and dims[0][1] == 1)
        # Its innermost dimension is not the one that is contiguous in memory, and rows are whole words.
        self.is_transposed = (
            itemsize <= 8 and len(dims) in (2, 3) and dims[0][0] * itemsize % 8 == 0 and dims[1][1] == 1
        )

        # … and two of those rows can be read at once.
        self.is_paired = False
        if self.is_transposed and itemsize == 2:
            _, apart, rows, _, _, outer_stride, _ = self.transposed_numbers
            self.is_paired = rows % 2 == apart % 4 == outer_stride % 4 == 0

    @property
    def in_memory_order(self) -> Layout:
        """The same elements as they come in memory, whatever the order of the dimensions."""
        dims = sorted(zip(self._stride, self._shape, strict=True), reverse=True)
        repeated = [dim for dim in dims if not dim[0]]  # outermost, so that runs of memory stay together
        stride, shape = zip(*repeated, *(dim for dim in dims if dim[0]), strict=True) if dims else ((), ())
        return Layout(shape, stride, self.itemsize)

    @property
    def fills_memory(self) -> bool:
        """Whether its elements lie side by side, in whatever order."""
        return self.in_memory_order.is_flat

    @property
    def transposed_numbers(self) -> tuple[int, ...]:
        (columns, apart), (rows, _), *outer = self.dims
        row_words = columns * self.itemsize // 8
        count, outer_stride = outer[0] if outer else (1, 0)
        apart, outer_stride = apart * self.itemsize, outer_stride * self.itemsize
        return row_words, apart, rows, row_words, count, outer_stride, rows * row_words

    @property
    def dims_in_bytes(self) -> list[tuple[int, int]]:
        return _in_bytes(self.dims, self.itemsize)

    def numbers_in_pieces(self, width: int) -> tuple[int, ...] | None:
        """Sizes and strides of up to four dimensions, if pieces of `width` bytes lie together."""
        dims = self.dims_in_bytes
        if len(dims) > 4 or _width(0, dims) < width or self.nbytes >= 1 << 31:
            return None
        (run, _), *outer = dims
        return (*(n for dim in [(run // width, width), *outer] for n in dim), *(1, 0) * (4 - len(dims)))

    @property
    def numbers_in_runs(self) -> tuple[int, ...] | None:
        """What `runs_sum` wants: up to four dimensions, the first a run that can be quartered."""
        dims = self.dims_in_bytes
        (run, _), *outer = dims
        fits = len(dims) <= 4 and run % 64 == 0 and all(stride % 8 == 0 for _, stride in outer)
        if not fits or self.nbytes >= 1 << 31:
            return None
        (size1, stride1), (size2, stride2), (_, stride3) = [*outer, *[(1, 0)] * (4 - len(dims))]
        pairs = run // 64
        return pairs, magic(pairs), size1, stride1, magic(size1), size2, stride2, magic(size2), stride3

    @property
    def programs(self) -> int:
        """How many programs of a kernel share the work."""
        if self.is_flat:
            return _programs_of_flat(self.nbytes)
        if self.is_transposed:
            row_words, _, rows, _, count, _, _ = self.transposed_numbers
            rows = rows // 2 if self.is_paired else rows
            tiles = count * -(-rows // _TILE_ROWS) * -(-row_words // _TILE_WORDS)
            return min(tiles, _PROGRAMS_AT_MOST)
        return min(max(self.nbytes // (8 * _BLOCK), 1), _PROGRAMS_AT_MOST)


def magic(divisor: int) -> int:
    """What numbers below 2³¹ are multiplied by and then shifted, above bit 40, instead of being divided."""
    shift = 31 + (divisor - 1).bit_length()
    return shift << 40 | -(-(1 << shift) // divisor)


def _programs_of_flat(nbytes: int) -> int:
    return min(max(nbytes // (8 * _WORDS_A_PROGRAM), 1), _PROGRAMS_AT_MOST) if nbytes else 0


def _index_type(nbytes: int) -> Any:
    import triton.language as tl

    return tl.uint32 if nbytes < 1 << 31 else tl.int64


def _compiled(
    kernel: Any,
    numbers: list[int],
    *,
    num_warps: int = WARPS,
    related: Sequence[Spec] = (),
    **constants: Any,
) -> Any:
    """The kernel for the current device; among the constants may be options of the compiler.

    If it has to be built first, `related` ones are built at the same time.
    """
    module = kernel.fn.__module__.rpartition(".")[2]
    spec = Spec.of(module, kernel.fn.__name__, len(numbers), constants, num_warps)
    found = built(spec, torch._C._cuda_getDevice(), related)
    return kernel.warmup(*numbers, **constants, grid=(1,), num_warps=num_warps) if found is None else found


@cache
def is_hopper(device: int) -> bool:
    """Whether the device can start a kernel early and has packed numbers, as Hopper and its successors do."""
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)


def launch(kernel: Any, programs: int, stream: int, args: tuple[Any, ...]) -> None:
    kernel.run(programs, 1, 1, stream, kernel.function, kernel.packed_metadata, None, None, None, *args)


def _collapsed(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Dimensions as (size, stride), innermost first, with neighbours that are one run merged."""
    dims: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if dims and stride == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * size, dims[-1][1])
        else:
            dims.append((size, stride))
    return dims or [(1, 1)]


def _in_bytes(dims: list[tuple[int, int]], itemsize: int) -> list[tuple[int, int]]:
    """The same in bytes, beginning with the run of bytes that lie beside each other."""
    size, stride = dims[0]
    outer = dims[1:] if stride == 1 else dims
    run = size * itemsize if stride == 1 else itemsize
    return [(run, 1), *((n, s * itemsize) for n, s in outer)]


def _width(address: int, dims: list[tuple[int, int]]) -> int:
    """The widest load that fits the base, the run and every outer stride."""
    (run, _), *outer = dims
    for width in (8, 4, 2):
        if all(n % width == 0 for n in (address, run, *(stride for _, stride in outer))):
            return width
    return 1
