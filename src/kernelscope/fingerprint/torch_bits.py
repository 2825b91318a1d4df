"""The straightforward engine: `bits` in plain torch operations, on any device, without a sync.

It walks the tensor in logical row-major order, one bounded chunk at a time, and leaves the result in a
one-element slice of a log on the tensor's own device. Only Python scalars and device-side `arange` feed
the arithmetic, because a host tensor would have to be copied over, and that copy waits for the device.
The caller has switched off autograd and every mode (see `quiet`).
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Iterator
from types import TracebackType

import torch
from torch._C import DispatchKey, DispatchKeySet

from . import definition
from .definition import DTYPE_CODES, MASK64, WORD_BYTES

# Size of one chunk's buffer; multiples of 128, so that a chunk boundary is a word boundary for every dtype.
# `bits` holds four of them. A CPU chunk should stay in the cache; a device chunk should be large against the
# cost of a launch.
CPU_CHUNK_BYTES = 256 << 10
DEVICE_CHUNK_BYTES = 8 << 20

# Up to here the reference itself is faster on the CPU than twenty torch operations.
CPU_SMALL_BYTES = 512

DTYPE_NAMES: dict[torch.dtype, str] = {
    getattr(torch, name): name for name in DTYPE_CODES if hasattr(torch, name)
}

# The integer type that carries an element's bits through a copy: some dtypes have no copy kernel, and an
# integer copy cannot quiet a signalling NaN.
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.lru_cache(maxsize=1 << 16)
def salt(dtype: torch.dtype, nbytes: int) -> int:
    return definition.salt(DTYPE_NAMES[dtype], nbytes)


def _signed(value: int) -> int:
    """The same 64 bits as the signed integer that torch's int64 wants."""
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value


_POSITION = _signed(definition.POSITION)
_MIX_FIRST = _signed(definition.MIX_FIRST)
_MIX_SECOND = _signed(definition.MIX_SECOND)
# An arithmetic shift smears the sign bit; the mask takes that away.
_KEEP_FIRST = MASK64 >> definition.SHIFT_FIRST
_KEEP_SECOND = MASK64 >> definition.SHIFT_SECOND


def sum_into(tensor: torch.Tensor, out: torch.Tensor) -> None:
    """Write the definition's sum over the tensor into the one-element int64 `out` on the same device."""
    nbytes = tensor.numel() * tensor.itemsize
    if nbytes == 0:
        out.zero_()
        return
    if tensor.is_cpu and nbytes <= CPU_SMALL_BYTES and _readable(tensor):
        out.fill_(_signed(definition.reference_sum(ctypes.string_at(address(tensor), nbytes))))
        return
    limit = CPU_CHUNK_BYTES if tensor.is_cpu else DEVICE_CHUNK_BYTES
    words_at_most = min(limit, nbytes + WORD_BYTES - 1) // WORD_BYTES
    keys = torch.arange(1, words_at_most + 1, dtype=torch.int64, device=tensor.device).mul_(_POSITION)
    mixed, scratch = torch.empty_like(keys), torch.empty_like(keys)
    for index, words in enumerate(_word_chunks(tensor, limit)):
        count = words.numel()
        if index:
            keys.add_(_signed(definition.POSITION * words_at_most))
        if count < keys.numel():
            keys, mixed, scratch = keys[:count], mixed[:count], scratch[:count]
        torch.bitwise_xor(words, keys, out=mixed)
        _mix_(mixed, scratch)
        if index:
            out.add_(mixed.sum())
        else:
            torch.sum(mixed, 0, keepdim=True, out=out)


def _mix_(h: torch.Tensor, scratch: torch.Tensor) -> None:
    """`definition.mix` on each element of `h`, in place; `scratch` has the same shape."""
    h.mul_(_MIX_FIRST)
    torch.bitwise_right_shift(h, definition.SHIFT_FIRST, out=scratch)
    h.bitwise_xor_(scratch.bitwise_and_(_KEEP_FIRST))
    h.mul_(_MIX_SECOND)
    torch.bitwise_right_shift(h, definition.SHIFT_SECOND, out=scratch)
    h.bitwise_xor_(scratch.bitwise_and_(_KEEP_SECOND))


def _word_chunks(tensor: torch.Tensor, limit: int) -> Iterator[torch.Tensor]:
    """The logical bytes as zero-padded int64 words in chunks of `limit` bytes, each good until the next."""
    source = _carrier(tensor)
    size, total = source.itemsize, source.numel()
    step = limit // size
    flat = flat_words(source)
    staging: torch.Tensor | None = None
    for start in range(0, total, step):
        count = min(step, total - start)
        if flat is not None and count * size % WORD_BYTES == 0:
            yield flat[start : start + count].view(torch.int64)
            continue
        words = -(-count * size // WORD_BYTES)
        if staging is None:
            staging = torch.empty(words, dtype=torch.int64, device=tensor.device)
        chunk = staging[:words]
        if count * size % WORD_BYTES:
            chunk[-1:].zero_()
        gather(source, start, chunk.view(source.dtype)[:count])
        yield chunk


def _carrier(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits under a dtype that can be copied; conj and neg are left for the copy to resolve."""
    if tensor.is_conj() or tensor.is_neg():
        return tensor
    if tensor.itemsize > WORD_BYTES:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_CARRIERS[tensor.itemsize])


def flat_words(source: torch.Tensor) -> torch.Tensor | None:
    """A flat view that can be read in whole words, or None: an unaligned 8-byte load kills a CUDA context."""
    if not _readable(source):
        return None
    if source.storage_offset() * source.itemsize % WORD_BYTES or address(source) % WORD_BYTES:
        return None
    return source.view(-1)


def _readable(tensor: torch.Tensor) -> bool:
    """Whether the bytes in memory are the logical bytes."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def address(tensor: torch.Tensor) -> int:
    """Where the tensor's first element is."""
    return _storage_address(tensor) + int(tensor.storage_offset()) * tensor.itemsize


def _storage_address(tensor: torch.Tensor) -> int:
    # data_ptr() would turn a copy-on-write tensor into a real copy. This one does not count the offset.
    return int(torch._C._data_address(tensor))  # type: ignore[attr-defined]


def gather(source: torch.Tensor, start: int, into: torch.Tensor) -> None:
    """Copy the elements of `source` from logical index `start` on into the flat tensor `into`."""
    done = 0
    for piece in _pieces(source, start, start + into.numel()):
        size = piece.numel()
        into[done : done + size].view(piece.shape).copy_(piece)
        done += size


def _pieces(tensor: torch.Tensor, start: int, stop: int) -> Iterator[torch.Tensor]:
    """Views that together are the logical elements start…stop, in order, at most two per dimension."""
    if start == 0 and stop == tensor.numel():
        yield tensor
        return
    if tensor.dim() == 1:
        yield tensor[start:stop]
        return
    row = tensor.numel() // tensor.shape[0]
    first, last = -(-start // row), stop // row
    if first > last:
        yield from _pieces(tensor[last], start - last * row, stop - last * row)
        return
    if start < first * row:
        yield from _pieces(tensor[first - 1], start - (first - 1) * row, row)
    if first < last:
        yield tensor[first:last]
    if last * row < stop:
        yield from _pieces(tensor[last], 0, stop - last * row)


def poison(tensor: torch.Tensor) -> None:
    """Fill uninitialised memory with a pattern that a kernel is unlikely to leave there."""
    carrier = _carrier(tensor)
    carrier.fill_(int.from_bytes(b"\xa5" * carrier.itemsize, "little", signed=carrier.itemsize > 1))


# Everything between a Python call and the kernel. Excluding keys costs a tenth of popping and pushing modes,
# and works inside __torch_dispatch__, under fake, proxy, functorch and autocast alike.
_ABOVE_KERNELS = [
    *("Python", "PythonTLSSnapshot", "PythonDispatcher", "PreDispatch", "Functionalize"),
    *("ADInplaceOrView", "AutogradFunctionality", "AutogradOther"),
    *("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "FuncTorchVmapMode"),
    *("FuncTorchBatched", "FuncTorchBatchedDecomposition", "FuncTorchGradWrapper"),
    *("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastHPU", "AutocastPrivateUse1"),
]
_EXCLUDED = functools.reduce(operator.or_, (DispatchKeySet(getattr(DispatchKey, k)) for k in _ABOVE_KERNELS))
_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


class quiet:
    """No gradient, no mode and no subclass hook inside: operations go straight to the kernels."""

    __slots__ = ("_functions", "_grad", "_keys")

    def __enter__(self) -> None:
        self._functions = torch._C.DisableTorchFunction()
        self._keys = torch._C._ExcludeDispatchKeyGuard(_EXCLUDED)
        self._functions.__enter__()
        self._keys.__enter__()  # type: ignore[no-untyped-call]
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch._C._set_grad_enabled(self._grad)
        self._keys.__exit__(kind, error, trace)
        self._functions.__exit__(kind, error, trace)


def why_not(tensor: torch.Tensor) -> str | None:
    """Why this tensor cannot be fingerprinted, or None when it can."""
    with torch._C.DisableTorchFunction():
        return reason_against(tensor)


def reason_against(tensor: torch.Tensor) -> str | None:
    """`why_not` for callers that are quiet already."""
    cls = type(tensor)
    if cls not in _PLAIN_TYPES and not isinstance(tensor, torch.Tensor):
        return f"it is a {cls.__name__}, not a tensor"
    if cls not in _PLAIN_TYPES and cls.__torch_dispatch__ is not _NO_DISPATCH:
        if cls.__name__ == "FakeTensor":
            return "it is a fake tensor, which has no data"
        return f"it is a {cls.__name__}, which wraps other tensors; fingerprint those"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor):
        return "it is a wrapper of a functorch or functionalization transform, not a tensor with data"
    if tensor.is_meta:
        return "it is on the meta device, which has no data"
    if tensor.is_nested:
        return "it is a nested tensor; fingerprint its values and offsets"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}, which has no row-major bytes"
    if tensor.dtype not in DTYPE_NAMES:
        quantized = "is quantized" if tensor.is_quantized else "has no code in the fingerprint's definition"
        return f"its dtype {tensor.dtype} {quantized}"
    return missing_memory(tensor)


def missing_memory(tensor: torch.Tensor) -> str | None:
    # FSDP frees a parameter's memory by resizing its storage; reading it would crash the process.
    if _storage_address(tensor) or tensor.numel() == 0:
        return None
    if tensor._is_zerotensor():
        return "it is an immutable zero tensor, which has no memory"
    return "its memory has been freed or was never allocated"
