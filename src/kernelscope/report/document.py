"""Everything that the page shows of one run, as plain dictionaries, for a file or a server."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from itertools import chain
from typing import Any

from kernelscope.errors import RunError
from kernelscope.report.content.facts import facts, state
from kernelscope.report.content.findings import noticed
from kernelscope.report.content.rows import Wanted
from kernelscope.report.content.sites import counts, sites, times
from kernelscope.report.content.sources import Sources
from kernelscope.report.content.timeline import Moments
from kernelscope.store.stored_run import StoredRun
from kernelscope.text.amounts import counted

from .content import flow, pipeline, rows, values

Form = dict[str, Any]
LOOKED_AT = 1000  # calls of a served run whose hashes are all compared
_AROUND = 1000  # calls before and after one that are searched for producers and consumers
_MOST_FOUND = 8  # lists of calls that are kept


class RunDocument:
    """The data of a page about a run, computed on request."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self._found: dict[Wanted, list[int]] = {}

    def refresh(self) -> None:
        """While it is recorded: read what was written since."""
        self.run.close()
        self._found.clear()
        for name in ("_sources", "_is_whole", "_moments"):
            self.__dict__.pop(name, None)

    @cached_property
    def _sources(self) -> Sources:
        return Sources(self.run)

    # -- what the page begins with -------------------------------------------------------------------------

    def about(self) -> Form:
        return {"facts": facts(self.run), "compiled": pipeline.graphs(self.run)}

    def sites(self) -> Form:
        return sites(self.run)

    def counts(self) -> Form:
        return counts(self.run)

    def times(self) -> Form:
        return times(self.run)

    def state(self) -> Form:
        return {"calls": len(self.run), "state": state(self.run)}

    def findings(self) -> Form:
        calls = self.run.select(limit=LOOKED_AT) if self.run.has_hashes() else []
        return noticed(self.run, calls)

    # -- calls -----------------------------------------------------------------------------------------------

    def calls(self, wanted: Wanted, first: int, count: int) -> Form:
        """So many of the wanted calls, from a place among them on."""
        total, indices = self._page(wanted, first, count)
        calls = sorted(self.run.read_calls(indices), key=lambda call: call.index)
        return {"total": total, "first": first, "rows": rows.rows(calls)}

    def place(self, wanted: Wanted, index: int) -> Form:
        """Where among the wanted calls one stands, or the next after it."""
        if wanted.is_all and self._is_whole:
            return {"place": index}
        return {"place": bisect_left(self._matching(wanted), index)}

    def _page(self, wanted: Wanted, first: int, count: int) -> tuple[int, list[int]]:
        if wanted.is_all and self._is_whole:
            total = len(self.run)
            return total, list(range(first, min(first + count, total)))
        found = self._matching(wanted)
        return len(found), found[first : first + count]

    @cached_property
    def _is_whole(self) -> bool:
        """Whether calls are numbered from 0 without a gap; not of a run that keeps its last steps."""
        [(low, high, count)] = self.run.numbers("SELECT min(id), max(id), count(*) FROM calls")
        return not count or (low == 0 and high == count - 1)

    def _matching(self, wanted: Wanted) -> list[int]:
        if wanted not in self._found:
            if len(self._found) >= _MOST_FOUND:
                self._found.pop(next(iter(self._found)))
            self._found[wanted] = rows.indices(self.run, wanted)
        return self._found[wanted]

    def call(self, index: int) -> Form:
        """One call: its row, the calls that it reads from, those that read from it, and its saved tensors."""
        around = self.run.select(first=max(0, index - _AROUND), limit=2 * _AROUND + 1)
        here = [call.recorded for call in around if call.index == index]
        if not here:
            raise RunError(f"{self.run.path} has no call {index}; it has {counted(len(self.run), 'call')}")
        links = flow.producers(call.recorded for call in around)
        kept = values.saved(self.run, [index]).get(index, {})
        shown = rows.rows([*here, *self._neighbours(index, links)])
        place = next(at for at, call in enumerate(around) if call.index == index)
        return {
            "row": shown,
            "previous": around[place - 1].index if place else None,
            "next": around[place + 1].index if place + 1 < len(around) else None,
            "producers": links.get(index, {}),
            "consumers": flow.consumers(links).get(index, []),
            "searched": [around[0].index, around[-1].index],
            "saved": kept,
            "pictures": values.pictures(self.run, kept.values()),
        }

    def _neighbours(self, index: int, links: flow.Links) -> list[Any]:
        others = {writer for writer, _, _ in links.get(index, {}).values()}
        others |= {reader for _, reader, _, _ in flow.consumers(links).get(index, [])}
        return self.run.read_calls(sorted(others - {index}))

    def kernel(self, number: int) -> Form:
        found = {site.kernel.id: site.kernel for site, _ in self.run.sites.values()}
        if number not in found:
            raise RunError(f"{self.run.path} has no kernel {number}")
        return {"source": found[number].source}

    def timeline(self, begin: int | None, end: int | None, bins: int) -> Form:
        return self._moments.between(begin, end, bins)

    @cached_property
    def _moments(self) -> Moments:
        return Moments(self.run)

    # -- what the compiler did -------------------------------------------------------------------------------

    def graph(self, position: int) -> Form:
        if not 0 <= position < len(pipeline.graphs(self.run)):
            raise RunError(f"{self.run.path} has no graph {position}")
        with self.run.database.understood():
            return pipeline.graph(self.run, position, self._sources)

    # -- all at once -----------------------------------------------------------------------------------------

    def whole(self, first: int, limit: int, most_pictures: int) -> Form:
        """For one file: at most so many calls and pictures, and the page says what was left out."""
        run = self.run
        views = run.select(first=first, limit=limit)
        calls = [view.recorded for view in views]
        links = flow.producers(calls)
        kept = values.saved(run, [call.index for call in calls])
        files = list(dict.fromkeys(chain.from_iterable(of.values() for of in kept.values())))
        about = self.about()
        return {
            **about,
            **self.sites(),
            "counts": self.counts(),
            "times": self.times(),
            "findings": noticed(run, views),
            "rows": rows.rows(calls),
            "producers": links,
            "saved": kept,
            "pictures": values.pictures(run, files[:most_pictures]),
            "pictures_left_out": max(0, len(files) - most_pictures),
            "sources": {
                kernel.id: kernel.source
                for kernel in {site.kernel.id: site.kernel for site, _ in run.sites.values()}.values()
            },
            **_texts_once([self.graph(position) for position in range(len(about["compiled"]))]),
        }


def _texts_once(graphs: list[Form]) -> Form:
    """Forward and backward share the stages before them: each text stands once, and panes number it."""
    numbers: dict[str, int] = {}
    for graph in graphs:
        for pane in graph["panes"]:
            pane["text"] = numbers.setdefault(pane["text"], len(numbers))
    return {"pipeline": graphs, "texts": list(numbers)}
