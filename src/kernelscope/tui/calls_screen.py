"""The list of calls, from where keys lead to everything else."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from kernelscope.analysis.diff.search import diff
from kernelscope.errors import RunError
from kernelscope.model.run import Run

from .calls_table import CallsTable, plain
from .filter_query import InvalidFilter, parse_filter
from .screens import CallPage, DiffPage, Page, lines, source_page

_HINT = "a kernel, or kind= graph= step= phase=, or the number of a call"


class CallsScreen(Screen[None]):
    """Its keys are its own: on another page they mean nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "filter"),
        Binding("enter", "call", "call"),
        Binding("s", "source", "source"),
        Binding("f", "findings", "findings"),
        Binding("d", "diff", "diff"),
        Binding("q", "app.quit", "quit"),
        Binding("escape", "leave", "list", show=False),
    ]

    def __init__(self, run: Run, other: Run | None) -> None:
        super().__init__()
        self._run, self._other = run, other

    def compose(self) -> ComposeResult:
        run = self._run
        yield Static(plain(run.heading()), id="about")
        yield Input(placeholder=_HINT, id="asked")
        yield Static("", id="said")
        yield CallsTable(run, self._say)
        yield Footer()

    def on_mount(self) -> None:
        self._table.focus()
        if not len(self._run):
            self._say("the run has no calls")

    @property
    def _table(self) -> CallsTable:
        return self.query_one(CallsTable)

    def _say(self, said: str) -> None:
        self.query_one("#said", Static).update(plain(said))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            wanted = parse_filter(event.value)
        except InvalidFilter as error:
            self._say(str(error))
            return
        self._say("")
        self._table.show(wanted)
        if self._table.has_none:
            self._say("no call matches")
        self._table.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_call()

    def action_ask(self) -> None:
        self.query_one("#asked", Input).focus()

    def action_leave(self) -> None:
        self._table.focus()

    def action_call(self) -> None:
        if self._table.call is not None:
            self.app.push_screen(CallPage(self._run, self._table.call))

    def action_source(self) -> None:
        if self._table.call is not None:
            self.app.push_screen(source_page(self._table.call))

    def action_findings(self) -> None:
        run = self._run
        found = run.noted_findings()
        self.app.push_screen(Page("findings", lines(map(str, found) if found else ["no findings"])))

    def action_diff(self) -> None:
        if self._other is None:
            self._say("there is no second run; start with: kernelscope tui RUN --diff OTHER")
            return
        try:
            self.app.push_screen(DiffPage(diff(self._run, self._other), self._run, self._other))
        except RunError as error:
            self._say(str(error))
