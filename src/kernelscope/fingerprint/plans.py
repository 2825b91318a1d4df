"""Fingerprints that are known in advance: the same tensors, laid out alike, in each call of a graph.

A graph call reserves the rows of all its tensors at once; each flush then needs only their addresses.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch

from kernelscope.events import TensorSpec
from kernelscope.fingerprint.cuda.engine import Layout
from kernelscope.fingerprint.cuda.launcher import Prepared, quick
from kernelscope.fingerprint.cuda.plans import Part, can_be_swapped, parts_of_flush
from kernelscope.fingerprint.cuda.stats_batches import words_of_records
from kernelscope.fingerprint.cuda.stats_plans import Records

from . import torch_stats as stats_ops
from .cuda import engine as cuda
from .cuda import stats as cuda_stats
from .cuda import stats_plans as cuda_stats_plans
from .fingerprinter import Fingerprinter, Slot
from .host_plans import CannotPlan, Flush, Flushes, HostPlan, PlannedRows
from .stats import NO_NUMBERS
from .torch_bits import salt

__all__ = ["CannotPlan", "Plan", "in_one_pass", "plan"]


class Plan(Protocol):
    """The fingerprints of one graph, taken by one fingerprinter."""

    flushes: list[Callable[..., None]]  # given an execution, and tensors with the addresses of its own
    rows: int  # of one execution

    def begin(self) -> tuple[tuple[Any, ...], Slot]:
        """Reserve rows: what flushes are given, which ends with the first slot; and that slot."""

    def ended(self, execution: Any, *, broken_off: bool) -> None:
        """All of its flushes have been called; or it raised, and some never will be."""


def in_one_pass(fingerprinter: Fingerprinter, tensor: TensorSpec, view: TensorSpec) -> bool:
    """Whether one pass reads a tensor and a view that begins where it does."""
    plannable = (
        fingerprinter.kinds == ("bits",) and tensor.dtype == view.dtype and tensor.device.startswith("cuda")
    )
    if not plannable:
        return False
    size = getattr(torch, tensor.dtype).itemsize
    flat, swapped = Layout(tensor.shape, tensor.stride, size), Layout(view.shape, view.stride, size)
    if fingerprinter.has_stats:
        return flat.nbytes == swapped.nbytes and flat.fills_memory and swapped.fills_memory
    return can_be_swapped(flat, swapped)


def plan(
    fingerprinter: Fingerprinter,
    tensors: Sequence[TensorSpec],
    flushes: Flushes,
    swapped: Mapping[int, int],
    failed: Callable[[], None],
) -> Plan:
    """Prepare to fingerprint these tensors, in these groups; a flush calls `failed` instead of raising.

    `swapped` has the rows of views that `in_one_pass` allows to read with their tensors.
    """
    if fingerprinter.kinds != ("bits",):
        raise CannotPlan("a plan takes only bits and statistics")
    devices = {spec.device for spec in tensors}
    if len(devices) != 1:
        raise CannotPlan(f"the tensors are on {sorted(devices) or 'no device'}")
    device = torch.device(devices.pop())
    dtypes = [getattr(torch, spec.dtype) for spec in tensors]
    layouts = [Layout(s.shape, s.stride, d.itemsize) for s, d in zip(tensors, dtypes, strict=True)]
    salts = array("Q", [salt(d, layout.nbytes) for d, layout in zip(dtypes, layouts, strict=True)])
    made: HostPlan | _CudaPlan
    if device.type == "cpu":
        made = HostPlan(fingerprinter, tensors, layouts, salts, flushes)
    elif device.type != "cuda":
        raise CannotPlan(f"the tensors are on {device}")
    elif fingerprinter.has_stats:
        codes = [cuda_stats.CODES.get(dtype, 0) for dtype in dtypes]
        records = Records()
        parts = [
            list(cuda_stats_plans.parts_of_flush(rows, layouts, codes, swapped, records)) for rows in flushes
        ]
        numels = [
            layout.nbytes // dtype.itemsize if stats_ops.has_numbers(dtype) else NO_NUMBERS
            for layout, dtype in zip(layouts, dtypes, strict=True)
        ]
        made = _CudaPlan(fingerprinter, device, salts, parts, numels, records)
    else:
        parts = [list(parts_of_flush(list(enumerate(rows)), layouts, swapped)) for rows in flushes]
        made = _CudaPlan(fingerprinter, device, salts, parts)
    for i, rows in enumerate(flushes):
        read = [row for row in rows if layouts[row].nbytes]
        written = read + [swapped[row] for row in read if row in swapped]
        guarded = _guarded(made.flushes[i], fingerprinter, written, len(read), failed)
        made.flushes[i] = made.quickly(i, *guarded)
    made.written = [row for row, layout in enumerate(layouts) if layout.nbytes]
    if made.end is not None:
        made.end = made.quickly(-1, *_guarded(made.end, fingerprinter, made.written, 0, failed))
    return made


def _guarded(
    flush: Flush,
    fingerprinter: Fingerprinter,
    rows: Sequence[int],
    with_memory: int,
    failed: Callable[[], None],
) -> tuple[Callable[..., None], Callable[[Any, int], None]]:
    """The flush, given tensors of which so many are not empty; and what is called when a launch fails."""
    modes = torch._C._len_torch_function_stack

    def guarded(execution: Any, *tensors: torch.Tensor) -> None:
        if execution is None:  # no rows could be reserved, which has been reported
            return
        try:
            if modes():  # the user's, which see data_ptr() as well
                with torch._C.DisableTorchFunction():
                    addresses = [tensor.data_ptr() for tensor in tensors]
            else:
                addresses = [tensor.data_ptr() for tensor in tensors]
            if 0 in addresses and len(addresses) - addresses.count(0) < with_memory:
                _give_up(
                    fingerprinter,
                    execution,
                    rows,
                    "its memory, or that of a tensor read together with it, was freed",
                )
            else:
                flush(execution, *addresses)
        except Exception as error:
            failed()
            with suppress(Exception):  # at least that was reported
                _give_up(fingerprinter, execution, rows, str(error))

    def refused(execution: Any, error: int) -> None:
        _give_up(fingerprinter, execution, rows, f"the driver did not launch its kernel (CUDA error {error})")
        failed()

    return guarded, refused


def _give_up(fingerprinter: Fingerprinter, execution: Any, rows: Sequence[int], why: str) -> None:
    *_, first = execution
    for row in rows:
        fingerprinter.fail(first + row, why)


class _CudaPlan(PlannedRows):
    """Rows in the log of a GPU."""

    def __init__(
        self,
        fingerprinter: Fingerprinter,
        device: torch.device,
        salts: array[int],
        flushes: Sequence[Sequence[Part]],
        numels: Sequence[int] = (),
        records: Records | None = None,
    ) -> None:
        if reason := cuda.unavailable():
            raise CannotPlan(reason)
        self._fingerprinter = fingerprinter
        self._salts = salts
        self.rows = len(salts)
        self._numels = numels
        self._records = records
        self._idle: dict[int, list[torch.Tensor]] = {}  # by stream, memory for records
        self._device = device.index
        self._number, self._log = fingerprinter.log_of(device)
        if len(salts) > self._log.rows_at_once:
            raise CannotPlan(
                f"{len(salts)} fingerprints in one graph are too many; {self._log.rows_at_once} is the most"
            )
        end: Sequence[Part] = [records] if records is not None and records.count else []
        numbers = [n for flush in (*flushes, end) for part in flush for n in part.table] or [0]
        self._table, self._ready = self._log.on_device(numbers)
        self._streams = {torch._C._cuda_getCurrentRawStream(self._device)}
        at = self._table.data_ptr()
        self.flushes: list[Flush] = []
        self._launches: list[list[Prepared | None]] = []
        for flush in (*flushes, end):
            bound, launches = [], []
            for part in flush:
                bound.append(part.bind(at, self._device))
                launches.append(part.prepare(at, self._device))
                at += 8 * len(part.table)
            self.flushes.append(_one_after_another(bound))
            self._launches.append(launches)
        last = self.flushes.pop()
        self.end = last if end else None

    def quickly(self, flush: int, carefully: Flush, refused: Callable[[Any, int], None]) -> Flush:
        """Through C++ where every launch of the flush is one that can be prepared."""
        launches = self._launches[flush]
        known = [launch for launch in launches if launch is not None]
        if not known or len(known) < len(launches):
            return carefully
        counted = 5 if self._launches[flush] is self._launches[-1] and self.end is not None else 2
        return quick(known, carefully, refused, stream=1, counted=(counted,))

    def begin(self) -> tuple[tuple[Any, ...], Slot]:
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        if stream not in self._streams:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(self._ready)
            self._table.record_stream(current)  # a plan may be let go of while its kernels are queued
            self._streams.add(stream)
        log = self._log
        reservation = self._fingerprinter.reservation()
        row = self._fingerprinter.reserve_on_device(log, self._salts, stream, self._numels, reservation)
        slot = self._fingerprinter.slot(self._number, row)
        self._fingerprinter.under_way[slot] = self.rows
        execution: tuple[Any, ...] = (log.address(row), stream, log.chunk(row))
        if self._records is not None:
            room = self._room(stream)
            execution += (log.stats_address(row), room.address, log.stats_chunk(row), room)
        return (*execution, reservation, slot), slot

    def ended(self, execution: tuple[Any, ...], *, broken_off: bool) -> None:
        super().ended(execution, broken_off=broken_off)
        if self.end is not None:
            self.end(execution)
        *_, reservation, first = execution
        row = first - self._fingerprinter.slot(self._number, 0)
        self._fingerprinter.enqueued(self._log, row, reservation=reservation)
        self._fingerprinter.under_way.pop(first, None)

    def _room(self, stream: int) -> _Room:
        assert self._records is not None
        idle = self._idle.setdefault(stream, [])
        try:
            memory = idle.pop()
        except IndexError:  # of executions at the same time, each has its own
            memory = self._log.zeros(words_of_records(self._records.count), torch.float64)
        return _Room(memory, idle)


class _Room:
    """Memory for the records of one execution; the next on its stream may have it, behind this one."""

    def __init__(self, memory: torch.Tensor, idle: list[torch.Tensor]) -> None:
        self._memory, self._idle = memory, idle
        self.address = memory.data_ptr()

    def __del__(self) -> None:
        self._idle.append(self._memory)


def _one_after_another(parts: list[Flush]) -> Flush:
    if len(parts) == 1:
        return parts[0]

    def flush(execution: Any, *addresses: int) -> None:
        for part in parts:
            part(execution, *addresses)

    return flush
