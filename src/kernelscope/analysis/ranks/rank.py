"""One rank of a run, with what is needed to hold it against the others."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from kernelscope.analysis.alignment.calls_by_position import Reader
from kernelscope.analysis.alignment.identity import kernel_key
from kernelscope.events import Site
from kernelscope.model.call import KernelCall
from kernelscope.model.collectives import communicates, groups_in, is_between_two, is_functional
from kernelscope.model.run import Run
from kernelscope.store.columns import Columns, Ints, columns_of

from .deviation import Deviation

__all__ = ["Rank", "communicates", "is_functional", "site_key"]


class Rank:
    """The calls of one rank as columns, and a few of them in full on demand."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.number, self.host = run.info.rank, run.info.host
        self.columns: Columns = columns_of(run, found=True)
        self.reader = Reader(run, self.columns.index)
        self.levels: Ints = np.zeros(len(self.columns), np.int64)  # collectives before each call

    def at(self, position: int) -> KernelCall:
        return self.reader.at(position)

    def kernel_at(self, position: int) -> str:
        return self.columns.sites[int(self.columns.site[position])].kernel.name

    @cached_property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each process group, by its name."""
        return groups_in(self.run.marks)

    @cached_property
    def collectives(self) -> list[tuple[int, str]]:
        """Position and group of each collective, in order; messages between two ranks are left out."""
        wanted = {
            id: site.collective
            for id, site in self.columns.sites.items()
            if site.collective and not is_between_two(site.kernel.name)
        }
        at = np.flatnonzero(np.isin(self.columns.site, list(wanted)))
        return [(int(p), wanted[int(self.columns.site[p])]) for p in at]

    def deviation(self, kind: str, position: int, reason: str, **known: Any) -> Deviation:
        call = self.at(position)
        known.setdefault("suspects", (self.number,))
        known.setdefault("argument", None)
        return Deviation(
            kind=kind, rank=self.number, host=self.host, index=call.index, step=call.step, phase=call.phase,
            kernel_name=call.kernel_name, origin=call.origin, graph=call.graph.name if call.graph else "",
            reason=reason, level=int(self.levels[position]), **known,
        )  # fmt: skip

    def position(self, index: int) -> int:
        """Where the call with this index stands."""
        return int(np.searchsorted(self.columns.index, index))


def site_key(site: Site) -> Any:
    """The same for the same code launched in the same way, on whatever rank."""
    args = tuple(
        (a.name, a.role, a.tensor and (a.tensor.dtype, a.tensor.shape, a.tensor.stride), repr(a.value))
        for a in site.args
    )
    return kernel_key(site.kernel), args, site.grid, repr(sorted(site.config.items(), key=str))
