"""The arguments of the kernels for statistics: tensors for one launch, cut into shares. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelscope.fingerprint.definition import DTYPE_CODES

BLOCK = 1024  # words that a program looks at together
# How many programs a tensor gets, and so in which order its numbers are added, depends on its size alone.
BYTES_A_PROGRAM = 2 * 8 * BLOCK  # from here on it gets another …
PROGRAMS_AT_MOST = 132 * 2  # … up to here, as many as an H200 runs at once …
BYTES_AT_MOST = 8 << 20  # … or a multiple of it, if one would have more than this: sums must fit 32 bits
AT_ONCE = 8  # tensors in a launch
WARPS = 8
REGISTERS = 128  # so that as many programs fit on the device
FLAT_NUMBERS, STRIDED_NUMBERS = 3 + 6 * AT_ONCE + 1, 20  # that a launch takes
# Dtypes that share a launch, because they do in most programs. With any others a kernel would have to be
# compiled for each set of dtypes, which takes seconds.
MIXED = frozenset(DTYPE_CODES[name] for name in ("float16", "bfloat16", "float32"))
UNHASHED = 64  # added to a dtype code where the bits come from elsewhere
RECORD = 10  # float64 numbers that a program leaves
GROUP = 16  # records whose first numbers lie side by side, then their second ones, …: a cache line
COUNTERS = AT_ONCE  # 64-bit words before the records


def programs_for(nbytes: int) -> int:
    """That share the work on a tensor."""
    if not nbytes:
        return 0
    if nbytes > PROGRAMS_AT_MOST * BYTES_AT_MOST:
        return PROGRAMS_AT_MOST * -(-nbytes // (PROGRAMS_AT_MOST * BYTES_AT_MOST))
    return max(min(nbytes // BYTES_A_PROGRAM, PROGRAMS_AT_MOST), 1)


def words_of_records(count: int) -> int:
    """64-bit words, of so many records and what stands before them."""
    return COUNTERS + RECORD * GROUP * -(-count // GROUP)


class Batch:
    """Tensors for one launch, as the kernel takes them."""

    def __init__(self) -> None:
        # Address, bytes, programs up to its last, dtype code, row, first record.
        self.tensors: list[list[int]] = []
        self.programs = 0
        self.kinds = 0

    def add(self, address: int, nbytes: int, code: int, row: int, record: int | None = None) -> None:
        first = self.programs if record is None else record
        self.programs += programs_for(nbytes)
        self.kinds |= 1 << code % UNHASHED
        self.tensors.append([address, nbytes, self.programs, code, row, first])

    def at(self, addresses: Sequence[int]) -> Batch:
        """The same tensors elsewhere."""
        moved = Batch()
        moved.programs, moved.kinds = self.programs, self.kinds
        moved.tensors = [[a, *rest] for a, (_, *rest) in zip(addresses, self.tensors, strict=True)]
        return moved

    @property
    def numbers(self) -> list[int]:
        unused = [0, 0, self.programs, 0, 0, 0] * (AT_ONCE - len(self.tensors))
        return [n for tensor in self.tensors for n in tensor] + unused


class Batches:
    """The batches that are being filled: one for each dtype, and one for those that share a launch."""

    def __init__(self) -> None:
        self._open: dict[int, Batch] = {}

    def add(self, address: int, nbytes: int, code: int, row: int) -> Batch | None:
        """The batch, if it is full now."""
        group = group_of(code)
        batch = self._open.setdefault(group, Batch())
        batch.add(address, nbytes, code, row)
        return self._open.pop(group) if len(batch.tensors) == AT_ONCE else None

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._open.values())


def group_of(code: int) -> int:
    """The same for dtypes that share a launch."""
    code %= UNHASHED
    return 0 if code in MIXED else code
