"""Looks for NaN and infinities on a GPU without waiting: a kernel raises a flag in memory of the host.

Every tensor has a row, which stays zero where all is finite, so rows are used again. They are read once the
flag is up.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from kernelscope.fingerprint.torch_bits import quiet

from . import engine as cuda
from .building.kernel_files import Spec
from .launcher import Prepared, prepared

F32, F16, BF16, F64, E5M2, E4M3 = range(6)  # as scan_kernel has them
KINDS = {
    torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16, torch.float64: F64,
    torch.float8_e5m2: E5M2, torch.float8_e4m3fn: E4M3,
}  # fmt: skip
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
AT_ONCE, ROW = 8, 3
_NUMBERS = 3 + 2 * AT_ONCE  # that a launch takes
DEVICE = "cuda"
ROWS = 1 << 17  # handed out in turn: the host never gets as far ahead of a device
CAPTURED_ROWS = 1 << 14  # of CUDA graphs, which keep theirs
BLOCK = 1024
_WORDS_A_PROGRAM = 8 * BLOCK
_PROGRAMS_AT_MOST = 132 * 8
NAN, POS_INF, NEG_INF = 1, 2, 4
# A tensor that fills its memory: its address, and size and kind as `about` packs them.
Piece = tuple[int, int]


class CannotScan(Exception):
    """Why a tensor inside a CUDA graph cannot be checked."""


@dataclass(frozen=True, slots=True)
class Counts:
    nan: int
    pos_inf: int
    neg_inf: int


class DeviceScan:
    """Rows and flag of one GPU."""

    def __init__(self, device: torch.device, wanted: int) -> None:
        self.device = device
        with quiet(), torch.inference_mode(False):
            self._rows = torch.zeros((ROWS + CAPTURED_ROWS) * ROW, dtype=torch.int64, device=device)
            self._flag = _host_memory()
            wait_for(device)  # once: other streams write there too
        self._seen = self._flag.numpy()
        self._wanted = wanted
        self._next, self._next_captured = 0, ROWS
        self._lock = threading.Lock()

    @property
    def is_raised(self) -> bool:
        return bool(self._seen[0])

    def reserve(self, count: int, *, captured: bool = False) -> int:
        """The first of so many neighbouring rows."""
        with self._lock:
            if captured:
                first = self._next_captured
                if first + count > ROWS + CAPTURED_ROWS:
                    raise CannotScan(f"CUDA graphs have more than {CAPTURED_ROWS} tensors to check")
                self._next_captured += count
                return first
            if count > ROWS // 4:
                raise ValueError(
                    f"{count} tensors in one graph are too many to check; {ROWS // 4} is the most"
                )
            first = self._next if self._next + count <= ROWS else 0
            self._next = first + count
            return first

    def enqueue(self, first: int, tensors: Sequence[torch.Tensor]) -> None:
        """Look at these tensors, on the current stream; they have the rows from `first` on."""
        pieces, kept = [], []
        for tensor in tensors:
            piece, copy = piece_of(tensor)
            pieces.append(piece)
            kept.append(copy)
        self.enqueue_pieces(first, pieces, current_stream(self.device))

    def enqueue_pieces(self, first: int, pieces: Sequence[Piece], stream: int) -> None:
        for start in range(0, len(pieces), AT_ONCE):
            batch, programs = packed(pieces[start : start + AT_ONCE])
            if programs:
                at = self.address(first + start)
                launch(self.device.index, programs, stream, (at, self._flag.data_ptr(), self._wanted, *batch))

    def prepare(self, row: int, pieces: Sequence[tuple[int, int]]) -> list[Prepared | None]:
        """Launches for the rows from this one on; a piece is the place of its tensor, and `about` it."""
        made: list[Prepared | None] = []
        for start in range(0, len(pieces), AT_ONCE):
            some = pieces[start : start + AT_ONCE]
            batch, programs = packed([(0, described) for _, described in some])
            if programs:
                numbers = [0, self._flag.data_ptr(), self._wanted, *batch]
                of_tensors = [(3 + 2 * i, place, 0) for i, (place, _) in enumerate(some)]
                kernel = _compiled(self.device.index)
                at = 8 * ROW * (row + start)
                early = cuda.is_hopper(self.device.index)
                made.append(prepared(kernel, programs, numbers, [(0, 0, at)], of_tensors, early=early))
        return made

    def address(self, row: int) -> int:
        return int(self._rows.data_ptr()) + 8 * ROW * row

    def read(self) -> list[list[int]]:
        """All rows; waits for the device."""
        with quiet():
            wait_for(self.device)
            rows: list[list[int]] = self._rows.cpu().view(-1, ROW).tolist()
        return rows

    def clear(self) -> None:
        """Begin anew; waits for the device."""
        with quiet():
            self._rows.zero_()
            wait_for(self.device)
            self._flag.zero_()


def _host_memory() -> torch.Tensor:
    """An int32 that the host can look at while the GPU writes to it."""
    return torch.zeros(1, dtype=torch.int32, device="cpu").pin_memory()


def wait_for(device: torch.device) -> None:
    torch.cuda.synchronize(device)


def current_stream(device: torch.device) -> int:
    stream: int = torch._C._cuda_getCurrentRawStream(device.index)
    return stream


def has_such(dtype: torch.dtype) -> bool:
    """Whether there are NaN and infinities in this dtype at all."""
    return dtype.is_floating_point or dtype.is_complex


def kind_of(dtype: torch.dtype) -> int | None:
    """None for dtypes that have to be made float32 first."""
    return KINDS.get(_REAL.get(dtype, dtype))


def about(nbytes: int, kind: int) -> int:
    """Size and kind of a tensor, packed for the kernel."""
    return nbytes // 8 | nbytes % 8 << 48 | kind << 51


def piece_of(tensor: torch.Tensor) -> tuple[Piece, torch.Tensor | None]:
    """Its memory as one piece; and a copy, if it had to be made to be one."""
    if not tensor.numel():
        return (0, 0), None
    kind, copy = kind_of(tensor.dtype), None
    if kind is None:
        tensor = copy = tensor.float()
        kind = F32
    elif not fills_its_memory(tensor.shape, tensor.stride()) or tensor.data_ptr() % 8:
        with quiet():
            tensor = copy = tensor.resolve_conj().clone(memory_format=torch.contiguous_format)
    return (tensor.data_ptr(), about(tensor.nbytes, kind)), copy


def fills_its_memory(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether its elements lie side by side, in whatever order."""
    expected = 1
    for step, count in sorted((s, n) for s, n in zip(stride, shape, strict=True) if n != 1):
        if step != expected:
            return False
        expected *= count
    return True


def packed(pieces: Sequence[Piece]) -> tuple[list[int], int]:
    """The kernel's arguments for up to eight pieces, and how many programs it takes."""
    numbers: list[int] = []
    programs = 0
    for address, described in pieces:
        if described & 0xFFFFFFFF or described >> 48 & 7:
            words = described & 0xFFFFFFFF
            programs += min(max(-(-words // _WORDS_A_PROGRAM), 1), _PROGRAMS_AT_MOST)
        numbers += (address, described | programs << 32)
    numbers += (0, programs << 32) * (AT_ONCE - len(pieces))
    return numbers, programs


def launch(device: int, programs: int, stream: int, args: tuple[int, ...]) -> None:
    if torch._C._cuda_getDevice() != device:
        with torch.cuda.device(device):
            launch(device, programs, stream, args)
            return
    cuda.launch(_compiled(device), programs, stream, (*args, BLOCK, cuda.is_hopper(device)))


def kernel_for(hopper: bool) -> Spec:
    how = {"BLOCK": BLOCK, "HOPPER": hopper}
    return Spec.of("nan_scan", "scan", _NUMBERS, how, cuda.WARPS)


@cache
def _compiled(device: int) -> Any:
    from kernelscope.fingerprint.cuda.kernels.nan_scan import scan

    return cuda._compiled(scan, [0] * _NUMBERS, BLOCK=BLOCK, HOPPER=cuda.is_hopper(device))


def prepare(device: torch.device) -> str:
    """Compile the kernel, before a CUDA graph is captured; why it cannot be, or nothing."""
    reason = cuda.unavailable()
    if not reason:
        with torch.cuda.device(device):
            _compiled(device.index)
    return reason
