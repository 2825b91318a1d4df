"""Planned fingerprints with statistics on a GPU: what is launched is known, up to the addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from . import cuda, cuda_stats
from .cuda import Layout
from .launcher import Prepared, prepared
from .stats import ROW_LENGTH

# Addresses of the first sum, the first row of statistics and the scratch; stream; the two pieces of the log;
# slot of the first row.
Execution: TypeAlias = tuple[int, int, int, int, Any, Any, int]
Flush: TypeAlias = Callable[..., None]


class _Flat:
    """Contiguous tensors with neighbouring rows, in one launch."""

    def __init__(
        self, places: Sequence[int], row: int, layouts: Sequence[Layout], codes: Sequence[int]
    ) -> None:
        self._places, self._row = tuple(places), row
        self.programs = 0
        self._rest: list[tuple[int, int, int]] = []
        for layout, code in zip(layouts, codes, strict=True):
            self.programs += cuda_stats.programs_for(layout.nbytes)
            self._rest.append((layout.nbytes, self.programs, code))

    def prepare(self, device: int) -> Prepared | None:
        template = [n for rest in self._rest for n in (0, *rest)]
        kernel, unused = cuda_stats.engine(device).flat_kernel(template, self.programs, False)
        most = sum(t != "constexpr" for t in kernel.src.signature.values())
        numbers = [0, 0, 0, *template, *unused][:most]  # without the constants
        of_execution = [(0, 0, 8 * self._row), (1, 1, 8 * ROW_LENGTH * self._row), (2, 2, 0)]
        of_tensors = [(3 + 4 * i, place, 0) for i, place in enumerate(self._places)]
        return prepared(kernel, self.programs, numbers, of_execution, of_tensors)

    def bind(self, device: int) -> Flush:
        kernels, row, programs = cuda_stats.engine(device), self._row, self.programs
        template = [n for rest in self._rest for n in (0, *rest)]
        kernel, unused = kernels.flat_kernel(template, programs, False)
        run, function, metadata = kernel.run, kernel.function, kernel.packed_metadata
        before_sums, before_rows = 8 * row, 8 * ROW_LENGTH * row
        places = list(zip(range(0, len(template), 4), self._places, strict=True))

        def flush(execution: Execution, *addresses: int) -> None:
            sums, rows, scratch, stream, chunk, stats_chunk, _ = execution
            batch, low_bits = template.copy(), 0
            for position, place in places:
                batch[position] = address = addresses[place]
                low_bits |= address
            there = (sums + before_sums, rows + before_rows, scratch)
            if low_bits % 8:
                kernels.flat(batch, programs, lambda programs: there, stream)
            else:
                run(
                    programs, 1, 1, stream, function, metadata, None, None, None, *there, *batch, *unused
                )  # fmt: skip
            chunk.writes += 1  # counted after the write is enqueued
            stats_chunk.writes += 1

        return flush


class _Alone:
    """A tensor that is not contiguous, or has no numbers."""

    def __init__(self, place: int, row: int, layout: Layout, code: int) -> None:
        self._place, self._row, self._layout, self._code = place, row, layout, code
        self.programs = cuda_stats.programs_of(layout)

    def prepare(self, device: int) -> None:
        """Which kernel it is depends on the address."""

    def bind(self, device: int) -> Flush:
        kernels, hashes = cuda_stats.engine(device), cuda.engine(device)
        place, row, layout, code = self._place, self._row, self._layout, self._code

        def flush(execution: Execution, *addresses: int) -> None:
            sums, rows, scratch, stream, chunk, stats_chunk, _ = execution
            address = addresses[place]
            there = (sums + 8 * row, rows + 8 * ROW_LENGTH * row, scratch)
            if code:
                done = kernels.strided(layout, address, code, lambda programs: there, stream)
            elif layout.is_flat:
                done = True
                batch = [address, layout.nbytes, layout.programs]
                hashes.flat(batch, layout.programs, there[0], stream)
            else:
                done = hashes.strided(layout, address, there[0], stream)
            if not done:
                raise ValueError(f"{len(layout.dims)} dimensions that do not collapse")
            chunk.writes += 1
            stats_chunk.writes += 1

        return flush


def parts_of_flush(
    rows: Sequence[int], layouts: Sequence[Layout], codes: Sequence[int]
) -> Iterator[_Flat | _Alone]:
    """The launches that fingerprint the tensors of these rows; `codes` has 0 where a dtype has no numbers."""
    from .cuda_stats_kernels import TENSORS_AT_ONCE

    together: list[int] = []  # places

    def finished() -> Iterator[_Flat]:
        if together:
            own = [rows[place] for place in together]
            yield _Flat(together, own[0], [layouts[row] for row in own], [codes[row] for row in own])
            together.clear()

    for place, row in enumerate(rows):
        layout = layouts[row]
        if not layout.nbytes:
            yield from finished()
        elif not (layout.is_flat and codes[row]):
            yield from finished()
            yield _Alone(place, row, layout, codes[row])
        else:
            if together and (rows[together[-1]] + 1 != row or len(together) == TENSORS_AT_ONCE):
                yield from finished()
            together.append(place)
    yield from finished()
