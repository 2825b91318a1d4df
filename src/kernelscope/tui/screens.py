"""One call, its source, the findings, and where two runs differ."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from rich.console import RenderableType
from rich.syntax import Syntax
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import DataTable, Footer, Static

from kernelscope.analysis.diff.divergence import Divergence
from kernelscope.errors import RunError
from kernelscope.model.call import KernelCall
from kernelscope.model.html import visible
from kernelscope.model.run import Run
from kernelscope.store.stored_run import StoredRun
from kernelscope.views import terminal

from .calls_table import plain

_AROUND = 10  # calls before and after a divergence
_LANGUAGES = {"cpp": "cpp", "gcu": "text"}


class Page(Screen[None]):
    """Some text that can be scrolled, and left again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "back"),
        Binding("q", "app.pop_screen", "back", show=False),
    ]

    def __init__(self, title: str, body: RenderableType) -> None:
        super().__init__()
        self._heading, self._body = title, body

    def compose(self) -> ComposeResult:
        yield Static(plain(self._heading), id="title")
        with VerticalScroll():
            yield Static(self._body, id="body")
            yield from self._below()
        yield Footer()

    def _below(self) -> Iterable[Widget]:
        return ()


class CallPage(Page):
    """Everything about one call; n and p go to its neighbours."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "source", "source"),
        Binding("n", "go(1)", "next call"),
        Binding("p", "go(-1)", "previous call"),
    ]

    def __init__(self, run: Run, call: KernelCall) -> None:
        super().__init__(_title(call), _readable(run, call))
        self._run, self.call = run, call

    def action_source(self) -> None:
        self.app.push_screen(source_page(self.call))

    def action_go(self, by: int) -> None:
        wanted = self.call.index + by
        try:
            found = self._run.select(first=wanted, limit=1) if wanted >= 0 else []
        except RunError as error:
            self.query_one("#body", Static).update(plain(error))
            return
        if not found:
            self.notify("no further call", severity="warning")
            return
        self.call = found[0]
        self.query_one("#title", Static).update(plain(_title(self.call)))
        self.query_one("#body", Static).update(_readable(self._run, self.call))


def source_page(call: KernelCall) -> Page:
    source = visible(call.source.strip())
    if not source:
        return Page(_title(call), plain("no source: this kernel is not generated code"))
    language = _LANGUAGES.get(call.kind, "python")
    return Page(_title(call), Syntax(source, language, line_numbers=True, word_wrap=True))


def lines(shown: Iterable[str]) -> Text:
    return Text(visible("\n".join(shown)))


def _title(call: KernelCall) -> str:
    return f"call {call.index}  [{call.kind}] {call.kernel_name}"


def _readable(run: Run, call: KernelCall) -> Text:
    """All of it, or why it cannot be read."""
    try:
        return lines(_block(run, call))
    except RunError as error:
        return plain(error)


def _block(run: Run, call: KernelCall) -> Iterable[str]:
    saved = run.saved_tensors(call.index) if isinstance(run, StoredRun) else {}
    return islice(terminal.call_block(call, saved), 1, None)  # its first line is the title


class DiffPage(Page):
    """The divergence in words, and the calls of both runs around it, side by side."""

    def __init__(self, divergence: Divergence, first: Run, second: Run) -> None:
        super().__init__(
            f"{divergence.compared.a} and {divergence.compared.b}", Text(visible(str(divergence)))
        )
        self._divergence, self._runs = divergence, (first, second)

    def _below(self) -> Iterable[Widget]:
        table: DataTable[Text] = DataTable(cursor_type="row", id="sides")
        table.add_columns("", "first run", "second run")
        for row in self._rows():
            table.add_row(*map(plain, row))
        yield table

    def _rows(self) -> Iterable[tuple[str, str, str]]:
        """By their distance from the divergence: before it both runs did the same."""
        d = self._divergence
        if not d:
            return
        at = [d.index if index is None else index for index in (d.index_a, d.index_b)]
        sides = [
            {
                call.index - place: f"{call.index}  {call.kernel_name}"
                for call in run.select(first=max(0, place - _AROUND), limit=min(place, _AROUND) + _AROUND)
            }
            for run, place in zip(self._runs, at, strict=True)
        ]
        for distance in range(-_AROUND, _AROUND):
            if distance in sides[0] or distance in sides[1]:
                mark = "▶" if distance == 0 else ""
                yield mark, sides[0].get(distance, ""), sides[1].get(distance, "")
