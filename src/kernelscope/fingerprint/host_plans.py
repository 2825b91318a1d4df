"""Planned fingerprints of CPU tensors: the functions that take them, each bound to its layout."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from kernelscope.events import TensorSpec
from kernelscope.fingerprint.cuda.engine import Layout

from .cpu import bits as cpu_bits
from .cpu import stats as cpu_stats
from .cpu.in_wrappers import planned as cpu_planned
from .cpu.library import BYTES_PER_THREAD, pack_layout
from .definition import mix
from .fingerprinter import Fingerprinter, Slot
from .stats import NO_NUMBERS

Flush: TypeAlias = Callable[..., None]  # given an execution, and the addresses of its tensors
Flushes: TypeAlias = Sequence[Sequence[int]]  # rows of tensors
_Take: TypeAlias = Callable[[int, int], None]  # given a row, and the address of its tensor


class CannotPlan(Exception):
    """Why these tensors cannot be planned."""


class PlannedRows:
    """Which rows of an execution have something to be written into."""

    _fingerprinter: Fingerprinter
    written: Sequence[int] = ()

    def ended(self, execution: tuple[Any, ...], *, broken_off: bool) -> None:
        if broken_off:
            *_, first = execution
            self._fingerprinter.doubt(first + row for row in self.written)


class HostPlan(PlannedRows):
    """Rows in the log of the host."""

    def __init__(
        self,
        fingerprinter: Fingerprinter,
        tensors: Sequence[TensorSpec],
        layouts: Sequence[Layout],
        salts: array[int],
        flushes: Flushes,
    ) -> None:
        self._fingerprinter = fingerprinter
        self.rows = len(salts)
        self._numels: list[int] = []  # with statistics: of each row
        about = list(zip(tensors, layouts, salts, strict=True))
        takes = [self._take(*each) for each in about]
        self.end: Flush | None = None
        self.flushes = [self._flush([(row, takes[row]) for row in rows]) for rows in flushes]
        self._pieces = [
            [self._piece(place, row, *about[row]) for place, row in enumerate(rows)] for rows in flushes
        ]

    def _take(self, spec: TensorSpec, layout: Layout, salted: int) -> _Take:
        log, is_flat = self._fingerprinter.host_log, layout.is_flat or layout.nbytes <= layout.itemsize
        if self._fingerprinter.has_stats:
            statistics = cpu_stats.LIBRARY.get()
            if statistics is None:
                raise CannotPlan(cpu_stats.LIBRARY.unavailable())
            row_at = statistics.row_of(spec.shape, spec.stride, getattr(torch, spec.dtype), is_flat)
            self._numels.append(NO_NUMBERS if row_at is None else layout.nbytes // layout.itemsize)
            if row_at is not None:

                def take_both(row: int, address: int) -> None:
                    total, stats = row_at(address)
                    log.set_stats(row, stats)
                    log.set_bits(row, mix(total ^ salted))

                return take_both
        bits = cpu_bits.LIBRARY.get()
        if bits is None:
            raise CannotPlan(cpu_bits.LIBRARY.unavailable())
        sum_at = bits.sum_of(spec.shape, spec.stride, layout.itemsize, layout.is_flat)
        if sum_at is None:
            raise CannotPlan(f"a tensor has {len(spec.shape)} dimensions")
        return lambda row, address: log.set_bits(row, mix(sum_at(address) ^ salted))

    def _piece(
        self, place: int, row: int, spec: TensorSpec, layout: Layout, salted: int
    ) -> cpu_planned.Piece:
        code = cpu_stats.code_of(getattr(torch, spec.dtype)) if self._fingerprinter.has_stats else -1
        is_flat = layout.is_flat or layout.nbytes <= layout.itemsize
        dims = len(spec.shape)
        packed = b"" if is_flat else pack_layout[dims](*spec.shape, *spec.stride)
        is_large = layout.nbytes >= (BYTES_PER_THREAD if code >= 0 else 2 * BYTES_PER_THREAD)
        return cpu_planned.Piece(
            place, row, layout.nbytes, layout.itemsize, dims, code, packed, salted, is_large
        )

    def quickly(self, flush: int, carefully: Flush, refused: Callable[[Any, int], None]) -> Flush:
        """All of it in one call of C++, which leaves what is out of the ordinary to `carefully`."""
        library, bits = cpu_planned.LIBRARY.get(), cpu_bits.LIBRARY.get()
        statistics = cpu_stats.LIBRARY.get() if self._fingerprinter.has_stats else None
        pieces = self._pieces[flush]
        if library is None or bits is None:
            return carefully
        functions = cpu_planned.Functions(
            bits.address, bits.strided_address, statistics.address if statistics is not None else 0
        )
        return library.take(pieces, functions, self._fingerprinter.host_log, carefully)

    def begin(self) -> tuple[tuple[Any, ...], Slot]:
        reservation = self._fingerprinter.reservation()
        first = self._fingerprinter.reserve_on_host(self.rows, self._numels, reservation)
        return (first, reservation, first), first

    def ended(self, execution: tuple[Any, ...], *, broken_off: bool) -> None:
        super().ended(execution, broken_off=broken_off)
        first, reservation, _ = execution
        self._fingerprinter.written_on_host(first, reservation)

    @staticmethod
    def _flush(todo: list[tuple[int, _Take]]) -> Flush:
        def flush(execution: tuple[Any, ...], *addresses: int) -> None:
            first = execution[0]
            for (row, take), address in zip(todo, addresses, strict=True):
                take(first + row, address)

        return flush
