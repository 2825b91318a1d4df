"""Planned fingerprints on a GPU: a flush is a launch or two, with little but addresses to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias

import torch

from . import engine as cuda
from .building.kernel_files import Spec
from .engine import Layout
from .launcher import Prepared, prepared
from .planned_layouts import (
    BOTH,
    ENTRY,
    FLAT,
    FLAT_AT_ONCE,
    FLAT_NUMBERS,
    NUMBERS,
    PAIRED,
    RUNS,
    STRIDED,
    STRIDED_2,
    TENSORS_AT_ONCE,
    TRANSPOSED_2,
    TRANSPOSED_4,
)

# All layouts together want 80, and then too few programs fit on the device to hide how far memory is.
_REGISTERS = {"flat": 48, "both": 72, "all": 48}
_PROGRAMS_AT_MOST = 132 * 8  # of a tensor among others of all layouts: looking it up costs each of them
_SMALL = 1 << 20  # bytes: a tensor of so many is read in less time than a launch takes
_NARROW_AT_MOST = 4 << 20  # bytes that are read two by two; more have a kernel of their own
_SWAPPED = 4  # elements of two bytes: so many by so many are read at once

# Address of the first row, stream, piece of the log; then what statistics need; slot of the first row.
Execution: TypeAlias = tuple[Any, ...]
Flush: TypeAlias = Callable[..., None]  # given an execution and addresses


class Part(Protocol):
    """One launch of a flush."""

    @property
    def table(self) -> Sequence[int]:
        """Numbers that have to be on the device."""

    def prepare(self, table: int, device: int) -> Prepared | None:
        """Nothing where it takes Python to launch it."""

    def bind(self, table: int, device: int) -> Flush: ...


class Contiguous:
    """Contiguous tensors in one launch."""

    table: Sequence[int] = ()

    def __init__(self, places: Sequence[int], rows: Sequence[int], layouts: Sequence[Layout]) -> None:
        self._places = tuple(places)  # among the addresses of the flush
        self._alone = [Alone(p, r, n) for p, r, n in zip(places, rows, layouts, strict=True)]
        self._programs = 0
        self._numbers: list[int] = []  # all but the log
        for row, layout in zip(rows, layouts, strict=True):
            self._programs += layout.programs
            self._numbers += (0, layout.nbytes, self._programs, row)
        unused = FLAT_AT_ONCE - len(rows)
        self._numbers += (0, 0, self._programs, 0) * unused

    def prepare(self, table: int, device: int) -> Prepared | None:
        of_tensors = [(1 + 4 * i, place, 0) for i, place in enumerate(self._places)]
        early = cuda.is_hopper(device)
        numbers = [0, *self._numbers]
        return prepared(_flat_kernel(device), self._programs, numbers, [(0, 0, 0)], of_tensors, early=early)

    def bind(self, table: int, device: int) -> Flush:
        kernel = _flat_kernel(device)
        run, function, metadata = kernel.run, kernel.function, kernel.packed_metadata
        programs, places, numbers = self._programs, self._places, self._numbers
        how = cuda._BLOCK, cuda.is_hopper(device)
        alone = [part.bind(0, device) for part in self._alone]

        def flush(execution: Execution, *addresses: int) -> None:
            log, stream, chunk, *_ = execution
            given, low_bits = numbers.copy(), 0
            for i, place in enumerate(places):
                given[4 * i] = address = addresses[place]
                low_bits |= address
            if low_bits % 8:
                for one in alone:
                    one(execution, *addresses)
                return
            run(programs, 1, 1, stream, function, metadata, None, None, None, log, *given, *how)
            chunk.writes += 1  # counted after the write is enqueued

        return flush


class Together:
    """A few tensors in one launch; what is the same each time stands in a table on the device."""

    def __init__(
        self,
        places: Sequence[int],
        rows: Sequence[int],
        layouts: Sequence[Layout],
        swapped: Mapping[int, tuple[int, Layout]],
    ) -> None:
        self._places = tuple(places)  # among the addresses of the flush
        self._alone = [Alone(p, r, n) for p, r, n in zip(places, rows, layouts, strict=True)]
        self._alone += [Alone(p, *swapped[r]) for p, r in zip(places, rows, strict=True) if r in swapped]
        kinds = [numbers_of(layout)[0] for layout in layouts]
        self._last = _last(max([*kinds, BOTH if swapped.keys() & rows else 0]))
        self._programs = 0
        ends: list[int] = []
        entries: list[int] = []
        for row, layout in zip(rows, layouts, strict=True):
            kind, *numbers = numbers_of(layout)
            programs = min(layout.programs, _PROGRAMS_AT_MOST)
            if row in swapped:
                other, view = swapped[row]
                kind, programs, numbers = (
                    BOTH,
                    _programs_of_both(view),
                    [*_of_both(view), other],
                )
            entry = [kind, row, layout.nbytes, self._programs, programs, *numbers]
            entries += entry + [0] * (ENTRY - len(entry))
            self._programs += programs
            ends.append(self._programs)
        unused = TENSORS_AT_ONCE - len(rows)
        self.table = [*ends, *[self._programs] * unused, *entries]
        self._unused = (0,) * unused

    def prepare(self, table: int, device: int) -> Prepared | None:
        kernel = _kernel(device, self._last)
        numbers = [table, 0, *(0 for _ in self._places), *self._unused]
        of_tensors = [(2 + i, place, 0) for i, place in enumerate(self._places)]
        early = cuda.is_hopper(device)
        return prepared(kernel, self._programs, numbers, [(1, 0, 0)], of_tensors, early=early)

    def bind(self, table: int, device: int) -> Flush:
        kernel = _kernel(device, self._last)
        run, function, metadata = kernel.run, kernel.function, kernel.packed_metadata
        programs, places = self._programs, self._places
        rest = (*self._unused, *_how(cuda.is_hopper(device), self._last).values())
        is_all = places == tuple(range(len(places)))
        alone = [part.bind(0, device) for part in self._alone]

        def flush(execution: Execution, *addresses: int) -> None:
            log, stream, chunk, *_ = execution
            given = addresses if is_all and len(addresses) == len(places) else [addresses[p] for p in places]
            low_bits = 0
            for address in given:
                low_bits |= address
            if low_bits % 8:
                for one in alone:
                    one(execution, *addresses)
                return
            run(programs, 1, 1, stream, function, metadata, None, None, None, table, log, *given, *rest)
            chunk.writes += 1  # counted after the write is enqueued

        return flush


class Alone:
    """A tensor whose layout the kernel for several does not know."""

    table: Sequence[int] = ()

    def __init__(self, place: int, row: int, layout: Layout) -> None:
        self._place = place
        self._row = row
        self._layout = layout

    def prepare(self, table: int, device: int) -> Prepared | None:
        """For addresses of whole words: a prepared launch is used for no other ones."""
        with torch.cuda.device(device):
            found = cuda.engine(device).for_layout(self._layout, 0)
        if found is None:
            return None
        kernel, about, _ = found
        log, tensor = [(0, 0, 8 * self._row)], [(1, self._place, 0)]
        return prepared(kernel, self._layout.programs, [0, 0, *about], log, tensor)

    def bind(self, table: int, device: int) -> Flush:
        place, offset, layout, kernels = self._place, 8 * self._row, self._layout, cuda.engine(device)

        def flush(execution: Execution, *addresses: int) -> None:
            log, stream, chunk, *_ = execution
            if layout.is_flat:
                batch = [addresses[place], layout.nbytes, layout.programs]
                kernels.flat(batch, layout.programs, log + offset, stream)
            elif not kernels.strided(layout, addresses[place], log + offset, stream):
                raise ValueError(f"{len(layout.dims)} dimensions that do not collapse")
            chunk.writes += 1

        return flush


def parts_of_flush(
    wanted: Sequence[tuple[int, int]], layouts: Sequence[Layout], swapped: Mapping[int, int]
) -> Iterator[Part]:
    """The launches that hash the tensors of these rows, and the views that are read with them.

    With each row comes the place of its tensor among those of the flush.
    """
    wanted = [(place, row) for place, row in wanted if layouts[row].nbytes]
    flat = [(place, row) for place, row in wanted if layouts[row].is_flat and row not in swapped]
    known = [(place, row) for place, row in wanted if (place, row) not in flat and numbers_of(layouts[row])]
    flat.sort(key=lambda one: layouts[one[1]].nbytes)
    known.sort(key=lambda one: numbers_of(layouts[one[1]])[0])  # so that few launches know all layouts
    joining = _joining([layouts[row].nbytes for _, row in flat], len(known))
    flat, known = flat[joining:], known + flat[:joining]
    for i in range(0, len(flat), FLAT_AT_ONCE):
        places, some = zip(*flat[i : i + FLAT_AT_ONCE], strict=True)
        yield Contiguous(places, some, [layouts[row] for row in some])
    for i in range(0, len(known), TENSORS_AT_ONCE):
        places, some = zip(*known[i : i + TENSORS_AT_ONCE], strict=True)
        others = {row: (swapped[row], layouts[swapped[row]]) for row in some if row in swapped}
        yield Together(places, some, [layouts[row] for row in some], others)
    yield from (Alone(place, row, layouts[row]) for place, row in wanted if not numbers_of(layouts[row]))


def _joining(sizes: Sequence[int], others: int) -> int:
    """How many contiguous tensors, of these sizes in order, are read with the others.

    A small one costs hardly more there than its share of a launch; a large one is read faster by the
    kernel for contiguous ones, so it joins only where that saves a launch of few tensors.
    """
    if not others:
        return 0
    small = sum(size <= _SMALL for size in sizes)
    rest = len(sizes) % FLAT_AT_ONCE
    few = rest if rest <= -others % FLAT_AT_ONCE else 0
    return min(-others % TENSORS_AT_ONCE, max(small, few))


def can_be_swapped(flat: Layout, view: Layout) -> bool:
    """Whether one pass can read the tensor as it lies and as the view, which begins where the tensor does."""
    if not (flat.is_flat and view.is_transposed and view.itemsize == 2 and flat.nbytes == view.nbytes):
        return False
    row_words, apart, rows, _, count, outer_stride, _ = view.transposed_numbers
    is_whole = apart == 2 * rows and (count == 1 or outer_stride == 8 * row_words * rows)
    return is_whole and rows % _SWAPPED == 0


def is_known(layout: Layout) -> bool:
    """Whether a kernel for several tensors reads it."""
    return not layout.nbytes or bool(numbers_of(layout))


def _of_both(view: Layout) -> tuple[int, int, int]:
    row_words, _, rows, _, count, _, _ = view.transposed_numbers
    return rows // _SWAPPED, row_words, count


def _programs_of_both(view: Layout) -> int:
    words, quads, count = _of_both(view)
    tiles = count * -(-quads // (cuda._TILE_ROWS // 4)) * -(-words // (2 * cuda._TILE_WORDS))
    return min(tiles, _PROGRAMS_AT_MOST)


def numbers_of(layout: Layout) -> list[int]:
    """The kind of a layout and what the kernel must know of it; nothing when it does not know that kind."""
    if layout.is_flat:
        return [FLAT]
    if layout.is_paired:
        return [PAIRED, *layout.transposed_numbers]
    if layout.is_transposed:
        kinds = {2: TRANSPOSED_2, 4: TRANSPOSED_4}
        kind = kinds.get(layout.itemsize)
        return [] if kind is None else [kind, *layout.transposed_numbers]
    if layout.numbers_in_runs is not None:
        return [RUNS, *layout.numbers_in_runs]
    for kind, width in ((STRIDED, 8), (STRIDED_2, 2)):
        numbers = layout.numbers_in_pieces(width)
        if numbers is not None and (width == 8 or layout.nbytes <= _NARROW_AT_MOST):
            return [kind, *numbers]
    return []


def _last(layout: int) -> int:
    """The last layout that a kernel for this one knows; it is compiled for few sets of layouts."""
    return next(last for last in (BOTH, STRIDED, STRIDED_2) if layout <= last)


def _how(hopper: bool, last: int) -> dict[str, Any]:
    how = {"BLOCK": cuda._BLOCK, "ROWS": cuda._TILE_ROWS, "WORDS": cuda._TILE_WORDS, "LAST": last}
    return how | {"HOPPER": hopper}


def _registers(last: int) -> int:
    return _REGISTERS["both" if last == BOTH else "all"]


def planned_kernels(hopper: bool) -> list[Spec]:
    """Those that all plans together need."""
    flat = {"BLOCK": cuda._BLOCK, "HOPPER": hopper, "maxnreg": _REGISTERS["flat"]}
    others = [_how(hopper, last) | {"maxnreg": _registers(last)} for last in (STRIDED, BOTH, STRIDED_2)]
    return [
        *(Spec.of("planned", "planned", NUMBERS, how, cuda.WARPS) for how in others),
        Spec.of("planned", "planned_flat", FLAT_NUMBERS, flat, cuda.WARPS),
    ]


@cache
def _kernel(device: int, last: int) -> Any:
    from .kernels.planned import planned

    how = _how(cuda.is_hopper(device), last)
    with torch.cuda.device(device):
        return cuda._compiled(planned, [0] * NUMBERS, **how, maxnreg=_registers(last))


@cache
def _flat_kernel(device: int) -> Any:
    from kernelscope.fingerprint.cuda.kernels.planned import planned_flat

    how: dict[str, Any] = {"BLOCK": cuda._BLOCK, "HOPPER": cuda.is_hopper(device)}
    with torch.cuda.device(device):
        return cuda._compiled(planned_flat, [0] * FLAT_NUMBERS, **how, maxnreg=_REGISTERS["flat"])
