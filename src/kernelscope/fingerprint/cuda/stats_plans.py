"""Planned statistics on a GPU: launches leave records, and the last of a graph call merges them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from . import engine as cuda
from . import plans as cuda_plans
from . import stats as cuda_stats
from .engine import Layout
from .launcher import Filled, Prepared, prepared
from .plans import Execution, Flush, Part
from .stats_batches import AT_ONCE, UNHASHED, Batch, group_of, programs_for

# Where in an execution the kernels' first three numbers are: sums, rows of statistics, records.
_PLACES: list[Filled] = [(0, 0, 0), (1, 3, 0), (2, 4, 0)]


class Records:
    """Those of one execution, and which tensors they are of."""

    def __init__(self) -> None:
        self.count = 0
        self._entries: list[int] = []

    @property
    def table(self) -> Sequence[int]:
        return self._entries

    def of(self, nbytes: int, row: int, twin: int) -> int:
        """The first record of a tensor; the twin is the row of a view with the same elements, or the same."""
        first, programs = self.count, programs_for(nbytes)
        self._entries += (first, programs, row, twin)
        self.count += programs
        return first

    def prepare(self, table: int, device: int) -> Prepared | None:
        kernel, _ = cuda_stats.engine(device).merge_kernel()
        places: list[Filled] = [(1, 3, 0), (2, 4, 0)]
        return prepared(kernel, len(self.table) // 4, [table, 0, 0], places, [], early=cuda.is_hopper(device))

    def bind(self, table: int, device: int) -> Flush:
        kernel, how = cuda_stats.engine(device).merge_kernel()
        programs = len(self.table) // 4

        def flush(execution: Execution) -> None:
            _, stream, _, rows, records, stats_chunk, *_ = execution
            cuda.launch(kernel, programs, stream, (table, rows, records, *how))
            stats_chunk.writes += 1  # counted after the write is enqueued

        return flush


class _Together:
    """Tensors without gaps, in one launch."""

    table: Sequence[int] = ()

    def __init__(self) -> None:
        self.batch = Batch()
        self._places: list[int] = []  # among the addresses of the flush

    def add(self, place: int, nbytes: int, code: int, row: int, record: int) -> bool:
        """Whether there is no room for another."""
        self._places.append(place)
        self.batch.add(0, nbytes, code, row, record)
        return len(self._places) == AT_ONCE

    def prepare(self, table: int, device: int) -> Prepared | None:
        kernel, _ = cuda_stats.engine(device).flat_kernel(self.batch, False)
        numbers = [0, 0, 0, *self.batch.numbers, 1]
        of_tensors = [(3 + 6 * i, place, 0) for i, place in enumerate(self._places)]
        early = cuda.is_hopper(device)
        return prepared(kernel, self.batch.programs, numbers, _PLACES, of_tensors, early=early)

    def bind(self, table: int, device: int) -> Flush:
        kernels, batch, places = cuda_stats.engine(device), self.batch, self._places

        def flush(execution: Execution, *addresses: int) -> None:
            sums, stream, chunk, rows, records, *_ = execution
            here = batch.at([addresses[place] for place in places])
            kernels.flat(here, lambda programs: (sums, rows, records), stream, later=True)
            chunk.writes += 1

        return flush


class _WithGaps:
    """The statistics of one tensor."""

    table: Sequence[int] = ()

    def __init__(self, place: int, layout: Layout, code: int, row: int, record: int) -> None:
        self._place, self._layout, self._code = place, layout, code
        self._row, self._record = row, record

    def prepare(self, table: int, device: int) -> Prepared | None:
        found = cuda_stats.engine(device).strided_kernel(self._layout, 0, self._code)
        if found is None:
            return None
        kernel, programs, numbers, _ = found
        given = [0, 0, 0, self._row, self._record, 0, *numbers, 1]
        of_tensors = [(5, self._place, 0)]
        return prepared(kernel, programs, given, _PLACES, of_tensors, early=cuda.is_hopper(device))

    def bind(self, table: int, device: int) -> Flush:
        kernels, place, row, record = cuda_stats.engine(device), self._place, self._row, self._record
        layout, code = self._layout, self._code

        def flush(execution: Execution, *addresses: int) -> None:
            sums, stream, chunk, rows, records, *_ = execution
            done = kernels.strided(
                layout,
                addresses[place],
                code,
                row,
                lambda programs: (sums, rows, records),
                stream,
                record=record,
                later=True,
            )
            if not done:
                raise ValueError(f"{len(layout.dims)} dimensions that do not collapse")
            chunk.writes += 1

        return flush


def parts_of_flush(
    rows: Sequence[int],
    layouts: Sequence[Layout],
    codes: Sequence[int],
    views: Mapping[int, int],
    records: Records,
) -> Iterator[Part]:
    """The launches that fingerprint the tensors of these rows; `codes` has 0 where a dtype has no numbers.

    `views` has rows of views that have the same elements as their tensors, and so the same statistics.
    """
    together: dict[int, _Together] = {}  # by group of dtypes
    hashed: list[tuple[int, int]] = []  # those whose bits take a launch of their own
    for place, row in enumerate(rows):
        layout, code, twin = layouts[row], codes[row], views.get(row, row)
        if not layout.nbytes:
            continue
        if not (layout.is_flat and code):
            hashed.append((place, row))
        if twin != row:
            hashed.append((place, twin))
        if not code:
            continue
        in_memory, record = layout.in_memory_order, records.of(layout.nbytes, row, twin)
        if in_memory.is_flat:
            kind = code if layout.is_flat else code + UNHASHED
            group = group_of(code)
            if together.setdefault(group, _Together()).add(place, layout.nbytes, kind, row, record):
                yield together.pop(group)
        else:
            yield _WithGaps(place, in_memory, code, row, record)
    yield from together.values()
    yield from cuda_plans.parts_of_flush(hashed, layouts, {})
