"""Which calls of a run are shown or exported, read page by page: a long run never is in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from kernelscope.model.call import KernelCall
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun

PAGE = 5000  # calls read at once
_FEW = 1000


@dataclass(frozen=True, slots=True)
class CallFilter:
    """As `Run.select` takes it; the default is every call."""

    kernel: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    graph: int | str | None = None
    step: int | None = None
    phase: str | None = None
    first: int = 0
    limit: int = 0  # 0: all
    changed: bool = False  # only those that changed an argument in place

    def calls(self, run: Run) -> Iterator[KernelCall]:
        """In order of execution."""
        return islice(self._all(run), self.limit) if self.limit else self._all(run)

    def page(self, run: Run) -> tuple[list[KernelCall], bool]:
        """The calls, and whether there are more than the limit lets through."""
        found = list(islice(self._all(run), self.limit + 1) if self.limit else self._all(run))
        more = bool(self.limit) and len(found) > self.limit
        return found[: self.limit] if more else found, more

    def _all(self, run: Run) -> Iterator[KernelCall]:
        return (call for page in self._pages(run) for call in page if not self.changed or call.changed_args)

    def _pages(self, run: Run) -> Iterator[list[KernelCall]]:
        chosen = {
            "kernel": self.kernel or "*", "kind": self.kind, "graph": self.graph, "step": self.step,
            "phase": self.phase,
        }  # fmt: skip
        if not isinstance(run, StoredRun):
            yield run.select(**chosen, first=self.first)  # type: ignore[arg-type]
            return
        few = _FEW if self.changed else self.limit + 1  # how many of them changed something is not known
        size = min(PAGE, few) if self.limit else PAGE
        first = self.first
        while page := run.select(**chosen, first=first, limit=size):  # type: ignore[arg-type]
            yield page
            if len(page) < size:
                return
            first = page[-1].index + 1
