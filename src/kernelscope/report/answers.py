"""The requests that a served page may make: paths below its token, answered by a document."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kernelscope.errors import RunError
from kernelscope.report.content.comparison import Comparison
from kernelscope.report.content.ranks import RanksOfRun
from kernelscope.report.content.rows import Wanted
from kernelscope.store.stored_run import StoredRun

from .document import RunDocument

Form = dict[str, Any]
Question = Mapping[str, str]
_MOST_ROWS = 1000
_MOST_BINS = 4000


class UnknownRequest(LookupError):
    """A request that is not supported."""


class Answers:
    """Of one run, or of two and their diff. One request at a time: a run is read by one connection."""

    def __init__(
        self,
        run: StoredRun,
        other: StoredRun | None = None,
        ranks: RanksOfRun | None = None,
        precision: Form | None = None,
    ) -> None:
        self._runs = {"a": RunDocument(run)} | ({} if other is None else {"b": RunDocument(other)})
        self._comparison: Comparison | None = None
        self._ranks, self._precision = ranks, precision
        self._lock = threading.Lock()

    def opening(self) -> Form:
        """What the page holds when it comes: which runs there are."""
        opening: Form = {"served": True, "runs": dict.fromkeys(self._runs)}
        others = {"ranks": self._ranks, "precision": self._precision}
        has = {name: each is not None or None for name, each in others.items()}
        return opening | {"diff": "b" in self._runs or None} | has

    def answer(self, path: str, asked: Question) -> Form:
        """The answer to `a/calls`, `diff/rows`, …; UnknownRequest for anything else."""
        which, _, what = path.partition("/")
        with self._lock:
            if which == "diff" and "b" in self._runs:
                return self._of_diff(what, asked)
            if path == "ranks/about" and self._ranks is not None:
                return self._ranks.about()
            if path == "precision/about" and self._precision is not None:
                return self._precision
            if which in self._runs and what in _OF_RUN:
                document = self._runs[which]
                with document.run.database.understood():
                    return _OF_RUN[what](document, asked)
        raise UnknownRequest(path)

    def _of_diff(self, what: str, asked: Question) -> Form:
        if self._comparison is None:
            self._comparison = Comparison(self._runs["a"].run, self._runs["b"].run)
        if what == "about":
            return self._comparison.about()
        if what == "rows":
            return self._comparison.rows(*_page(asked))
        raise UnknownRequest(f"diff/{what}")


def _state(document: RunDocument, asked: Question) -> Form:
    document.refresh()
    return document.state()


def _calls(document: RunDocument, asked: Question) -> Form:
    return document.calls(_wanted(asked), *_page(asked))


def _timeline(document: RunDocument, asked: Question) -> Form:
    bins = min(_number(asked, "bins", 1000), _MOST_BINS)
    begin, end = (_number(asked, name) if name in asked else None for name in ("begin", "end"))
    return document.timeline(begin, end, bins)


_OF_RUN: dict[str, Callable[[RunDocument, Question], Form]] = {
    "about": lambda document, asked: document.about(),
    "sites": lambda document, asked: document.sites(),
    "counts": lambda document, asked: document.counts(),
    "times": lambda document, asked: document.times(),
    "state": _state,
    "findings": lambda document, asked: document.findings(),
    "calls": _calls,
    "place": lambda document, asked: document.place(_wanted(asked), _number(asked, "index")),
    "call": lambda document, asked: document.call(_number(asked, "index")),
    "kernel": lambda document, asked: document.kernel(_number(asked, "number")),
    "graph": lambda document, asked: document.graph(_number(asked, "number")),
    "timeline": _timeline,
}


def _page(asked: Question) -> tuple[int, int]:
    return _number(asked, "first", 0), min(_number(asked, "count", 200), _MOST_ROWS)


def _wanted(asked: Question) -> Wanted:
    sites = asked.get("sites")
    return Wanted(
        None if sites is None else tuple(_parsed("sites", word) for word in sites.split(",") if word),
        asked.get("phase"),
        _number(asked, "step") if "step" in asked else None,
        _number(asked, "stream") if "stream" in asked else None,
    )


def _number(asked: Question, name: str, default: int | None = None) -> int:
    if name not in asked and default is not None:
        return default
    return _parsed(name, asked.get(name, ""))


def _parsed(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise RunError(f"{name}={text[:40]!r} is not a number")
    return int(text)
