"""The application: the list of calls, and from there everything else."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from ..analysis.diff import diff
from ..run import Run, StoredRun
from ..run.errors import RunError
from ..run.listing import heading
from .asked import NotUnderstood, asked
from .calls_table import CallsTable, plain
from .screens import CallPage, DiffPage, Page, lines, source_page

_HINT = "a kernel, or kind= graph= step= phase=, or the number of a call"


class RunApp(App[None]):
    """Shows one run; with another one, also where the two differ."""

    TITLE = "kernelscope"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #about, #title { height: 1; padding: 0 1; background: $panel; color: $foreground; text-style: bold }
    #said { height: 1; padding: 0 1; color: $warning }
    Input { border: none; height: 1; padding: 0 1 }
    #calls { height: 1fr }
    #body { padding: 0 1; height: auto }
    #sides { height: auto; margin: 1 0 }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "choose"),
        Binding("enter", "call", "call", show=True, priority=False),
        Binding("s", "source", "source"),
        Binding("f", "findings", "findings"),
        Binding("d", "diff", "diff"),
        Binding("q", "quit", "quit"),
        Binding("escape", "leave", "list", show=False),
    ]

    def __init__(self, run: Run, other: Run | None = None) -> None:
        super().__init__()
        self.run_shown, self.other = run, other

    def compose(self) -> ComposeResult:
        run = self.run_shown
        totals = run.totals() if isinstance(run, StoredRun) else (len(run), len(run.kernels), len(run.graphs))
        yield Static(plain(heading(run, *totals)), id="about")
        yield Input(placeholder=_HINT, id="asked")
        yield Static("", id="said")
        yield CallsTable(run)
        yield Footer()

    def on_mount(self) -> None:
        self._table.focus()
        if not self._table.calls:
            self._say("the run has no calls" if not len(self.run_shown) else "")

    @property
    def _table(self) -> CallsTable:
        return self.query_one(CallsTable)

    def _say(self, said: str) -> None:
        self.query_one("#said", Static).update(plain(said))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self._table.show(asked(event.value))
        except (NotUnderstood, RunError) as error:
            self._say(str(error))
            return
        self._say("" if self._table.calls else "no such call")
        self._table.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_call()

    def action_ask(self) -> None:
        self.query_one("#asked", Input).focus()

    def action_leave(self) -> None:
        self._table.focus()

    def action_call(self) -> None:
        if self._table.call is not None:
            self.push_screen(CallPage(self.run_shown, self._table.call))

    def action_source(self) -> None:
        if self._table.call is not None:
            self.push_screen(source_page(self._table.call))

    def action_findings(self) -> None:
        run = self.run_shown
        found = run.noted_findings() if isinstance(run, StoredRun) else run.noted
        self.push_screen(Page("findings", lines(map(str, found) if found else ["none were noted"])))

    def action_diff(self) -> None:
        if self.other is None:
            self._say("to compare it with another run: kernelscope tui RUN --diff OTHER")
            return
        try:
            self.push_screen(DiffPage(diff(self.run_shown, self.other), self.run_shown, self.other))
        except RunError as error:
            self._say(str(error))
