"""Kernels that compute every element on its own, and read a buffer across the order in which it lies.

Element by element, each read would fetch a line of memory for one number. So squares of such a buffer are
transposed on their way to local memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kernelscope.gcu.lowering.dag import INDEX, Access, Buffer
from kernelscope.gcu.lowering.sizes import Size, is_one, is_zero

from .kernels import covers
from .pointwise import Chunk, PointwiseBody

_SIDE = 64  # of a square: it and its result fit into the nearest cache
_LEAST = 8  # below, a square fetches as many lines of memory as its elements alone


@dataclass(frozen=True)
class _Squares:
    counts: list[int]  # into how many parts each dimension is divided
    tile: list[int]
    parallel: int  # the dimension that is divided among threads


class TransposedBody(PointwiseBody):
    @property
    def applies(self) -> bool:
        return self._squares is not None

    def lines(self) -> list[str]:
        assert self._squares is not None
        made = self._squares
        rounds = [*made.counts]
        rounds[made.parallel] //= self.threads
        chunk = [f"o{d}" if n > 1 else "_" for d, n in enumerate(rounds)]
        if self.threads > 1:
            chunk[made.parallel] = f"p # o{made.parallel}"
        start = [f"o{d}" for d in range(len(rounds))]
        start[made.parallel] = f"(p * {rounds[made.parallel]} + o{made.parallel})"
        absolute = [f"{start[d]} * {made.tile[d]} + i{d}" for d in range(len(rounds))]
        inner = self.one_tile(Chunk(chunk, made.tile, absolute))
        loops = ", ".join(f"o{d}" for d in range(len(rounds)))
        body = [f"foreach {{{loops}}} in [{', '.join(map(str, rounds))}] {{", *("  " + x for x in inner), "}"]
        return [f"parallel p by {self.threads} {{", *("  " + line for line in body), "}"]

    @cached_property
    def _squares(self) -> _Squares | None:
        dims = [d for d in self.dims if isinstance(d, int)]
        crossed = self._crossed()
        if crossed is None or len(dims) != len(self.dims):
            return None
        tile = [1] * len(dims)
        for side in (crossed, len(dims) - 1):
            tile[side] = next((n for n in range(_SIDE, _LEAST - 1, -1) if dims[side] % n == 0), 0)
        if not all(tile):
            return None
        counts = [d // t for d, t in zip(dims, tile, strict=True)]
        shared = next((d for d, n in enumerate(counts) if n % self.threads == 0), None)
        return None if shared is None else _Squares(counts, tile, shared)

    def _crossed(self) -> int | None:
        """The dimension in which everything that is read across lies next to each other."""
        accesses = [self._over(a) for a in self._outside().values()]
        fastest = {
            across[-1] for a in accesses if a.buffer != INDEX and (across := self.read_across(a)) is not None
        }
        return fastest.pop() if len(fastest) == 1 else None

    def read_across(self, access: Access) -> list[int] | None:
        buffer = self.names.buffer(access.buffer)
        order = permuted(access, self.dims, buffer)
        if order is None or order[-1] == len(self.dims) - 1 or len(self.dims) - 1 not in order:
            return None
        return order


def permuted(access: Access, dims: list[Size], buffer: Buffer) -> list[int] | None:
    """The dimensions in the order in which the whole buffer lies; None if only a part of it is read."""
    if not all(isinstance(s, int) for s in access.strides):
        return None
    used = [i for i, s in enumerate(access.strides) if not is_zero(s) and not is_one(dims[i])]
    order = sorted(used, key=lambda i: -int(access.strides[i]))
    moved = Access(access.buffer, tuple(access.strides[i] for i in order), access.offset)
    found = covers(moved, [dims[i] for i in order], buffer)
    return order if found == list(range(len(order))) and order else None
