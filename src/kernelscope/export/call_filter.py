"""Which calls are exported, read page by page: a long run never stands in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun

_PAGE = 5000  # calls read at once


@dataclass(frozen=True, slots=True)
class Wanted:
    """As `Run.select` takes it; nothing given is every call."""

    kernel: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    graph: int | str | None = None
    step: int | None = None
    phase: str | None = None
    first: int = 0
    limit: int = 0  # 0: all

    def calls(self, run: Run) -> Iterator[KernelCall]:
        """In order of execution."""
        found = (call for page in self._pages(run) for call in page)
        return islice(found, self.limit) if self.limit else found

    def _pages(self, run: Run) -> Iterator[list[KernelCall]]:
        chosen = {
            "kernel": self.kernel or "*", "kind": self.kind, "graph": self.graph, "step": self.step,
            "phase": self.phase,
        }  # fmt: skip
        if not isinstance(run, StoredRun):
            yield run.select(**chosen, first=self.first)  # type: ignore[arg-type]
            return
        size = min(_PAGE, self.limit) if self.limit else _PAGE
        first = self.first
        while page := run.select(**chosen, first=first, limit=size):  # type: ignore[arg-type]
            yield page
            if len(page) < size:
                return
            first = page[-1].index + 1
