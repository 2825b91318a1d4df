"""How far a kernel's result is from eager and from float64, in one pass: C++ on a CPU, else torch."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

from kernelscope.fingerprint.cpu.library import threads_for
from kernelscope.fingerprint.cuda import engine as cuda
from kernelscope.native.load import OnDemand

from .not_finite import is_other_kind

_KINDS = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # integers of an element's size
_NUMBERS = struct.Struct("12d")


@dataclass(slots=True)
class Sums:
    """Over the elements where eager and float64 are both finite in the result's dtype."""

    considered: float = 0  # elements
    worst: float = 0  # of the kernel, against float64
    where: float = -1
    eager_worst: float = 0
    largest: float = 0  # of float64
    squares: float = 0
    eager_squares: float = 0
    reference_squares: float = 0
    along: float = 0  # the kernel's error, projected on the result
    eager_along: float = 0
    bad: float = 0  # of another kind than both (finite, inf, -inf, NaN), or finite where eager is not
    where_bad: float = -1


class MeasureLibrary:
    """One loaded library."""

    NAME = "measure"
    SOURCE = Path(__file__).with_name("measure.cpp")
    FLAGS: tuple[str, ...] = ()

    def __init__(self, library: Path) -> None:
        free, held = ctypes.CDLL(str(library)), ctypes.PyDLL(str(library))
        self._judge = free.kernelscope_judge
        self._judge.argtypes = [
            *[ctypes.c_void_p] * 3,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.c_double,
            ctypes.c_int,
            ctypes.c_char_p,
        ]
        self._judge.restype = None
        self._equal = held.kernelscope_equal
        self._equal.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
        self._equal.restype = ctypes.c_int

    def computes(self) -> bool:
        """Whether it agrees with the definition, on plain memory."""
        made = (ctypes.c_float * 4)(1.0, 2.5, 3.0, float("nan"))
        eager = (ctypes.c_float * 4)(1.0, 2.0, 3.0, 4.0)
        wide = (ctypes.c_double * 4)(1.0, 2.25, 3.0, 4.0)
        places = ctypes.addressof(made), ctypes.addressof(eager), ctypes.addressof(wide)
        found = self._sums(*places, 4, 1, 3.4e38, 1)
        return astuple(found)[:5] == (3, 0.25, 1, 0.25, 3) and (found.bad, found.where_bad) == (1, 3)

    def equal(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return bool(self._equal(a.data_ptr(), b.data_ptr(), a.nbytes))

    def sums(self, made: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor) -> Sums:
        limit = float(torch.finfo(made.dtype).max)
        return self._sums(
            made.data_ptr(), eager.data_ptr(), wide.data_ptr(), made.numel(), _KINDS[made.dtype], limit,
            max(1, threads_for(made.nbytes)),
        )  # fmt: skip

    def _sums(self, c: int, e: int, r: int, n: int, kind: int, limit: float, threads: int) -> Sums:
        room = ctypes.create_string_buffer(_NUMBERS.size)
        self._judge(c, e, r, n, kind, limit, threads, room)
        return Sums(*_NUMBERS.unpack(room.raw))


LIBRARY = OnDemand(MeasureLibrary)


def in_memory(value: torch.Tensor) -> torch.Tensor:
    """As numbers that lie in memory: torch keeps some conjugates, signs and zeros to itself."""
    if value._is_zerotensor():
        return torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return value.resolve_conj().resolve_neg()


def is_equal(made: torch.Tensor, eager: torch.Tensor) -> bool:
    """Bit by bit."""
    if made.dtype != eager.dtype or made.shape != eager.shape:
        return False
    made, eager = in_memory(made), in_memory(eager)
    found = LIBRARY.get() if made.device.type == "cpu" else None
    lie_in_memory = not made.numel() or bool(made.data_ptr() and eager.data_ptr())  # a subclass need not
    if found is not None and lie_in_memory and made.is_contiguous() and eager.is_contiguous():
        return found.equal(made, eager)
    if made.is_complex():
        made, eager = torch.view_as_real(made), torch.view_as_real(eager)
    bits = _BITS.get(made.itemsize)
    return torch.equal(made.view(bits), eager.view(bits)) if bits else torch.equal(made, eager)


def sums(made: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor) -> Sums:
    """Of three tensors of one shape; `wide` is float64."""
    if made.dtype not in _KINDS or eager.dtype != made.dtype or wide.dtype != torch.float64:
        return sums_by_torch(made, eager, wide)
    if made.device.type == "cuda" and made.numel() and not cuda.unavailable():
        from . import measure_on_gpu

        return Sums(*measure_on_gpu.numbers(made.contiguous(), eager.contiguous(), wide.contiguous()))
    found = LIBRARY.get() if made.device.type == "cpu" else None
    if found is not None:
        return found.sums(made.contiguous(), eager.contiguous(), wide.contiguous())
    return sums_by_torch(made, eager, wide)


def sums_by_torch(made: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor) -> Sums:
    limit = float(torch.finfo(made.dtype).max)
    c, e, r = made.double().flatten(), eager.double().flatten(), wide.flatten()
    bad = is_other_kind(c, e, r, limit)
    good = e.isfinite() & (r.abs() <= limit) & ~bad
    zero = torch.zeros((), dtype=torch.float64, device=c.device)
    dc, de = torch.where(good, c - r, zero), torch.where(good, e - r, zero)
    r = torch.where(good, r, zero)
    if not c.numel():
        return Sums()
    worst, where = dc.abs().max(0)
    numbers = [
        good.sum(), worst, where, de.abs().max(), r.abs().max(), (dc * dc).sum(), (de * de).sum(),
        (r * r).sum(), (dc * r).sum(), (de * r).sum(), bad.sum(), bad.to(torch.int8).argmax(),
    ]  # fmt: skip
    found = Sums(*torch.stack([n.double() for n in numbers]).tolist())
    found.where = found.where if found.worst else -1
    found.where_bad = found.where_bad if found.bad else -1
    return found
