"""The list of calls, which reads on when the cursor comes near its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual.widgets import DataTable

from kernelscope.errors import RunError
from kernelscope.model.call import KernelCall
from kernelscope.model.html import visible
from kernelscope.model.run import Run
from kernelscope.text.amounts import duration
from kernelscope.text.frames import short_frame

PAGE = 500
_NEAR = 100  # rows before the end
_COLUMNS = ("call", "kind", "time", "line", "kernel", "graph", "step", "phase")


def plain(value: object) -> Text:
    """Text as it is: what is in a run is never markup, and no code of a terminal."""
    return Text(visible("" if value is None else str(value)))


class CallsTable(DataTable[Text]):
    """Calls of a run, some hundreds at a time."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, id="calls")
        self._run, self._say = run, say
        self._filter: dict[str, Any] = {}
        self._next = 0
        self._is_whole = self._is_broken = False
        self.calls: list[KernelCall] = []

    def on_mount(self) -> None:
        self.add_columns(*_COLUMNS)
        self.show({})

    def show(self, wanted: dict[str, Any]) -> None:
        """Show the calls that match a filter."""
        self._filter = {key: value for key, value in wanted.items() if key != "first"}
        self._next, self._is_whole, self._is_broken = int(wanted.get("first", 0)), False, False
        self.calls = []
        self.clear()
        self.read_on()

    def read_on(self) -> None:
        if self._is_whole:
            return
        try:
            page = self._run.select(**self._filter, first=self._next, limit=PAGE)
        except RunError as error:  # a damaged run; what was read of it stays
            self._is_whole = self._is_broken = True
            self._say(str(error))
            return
        self._is_whole = len(page) < PAGE
        self.calls += page
        if page:
            self._next = page[-1].index + 1
        for call in page:
            self.add_row(*map(plain, _cells(call)), key=str(call.index))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if event.cursor_row >= len(self.calls) - _NEAR:
            self.read_on()

    @property
    def has_none(self) -> bool:
        """Whether it was read to the end, and nothing was there."""
        return not self.calls and not self._is_broken

    @property
    def call(self) -> KernelCall | None:
        """The one under the cursor."""
        return self.calls[self.cursor_row] if 0 <= self.cursor_row < len(self.calls) else None


def _cells(call: KernelCall) -> tuple[object, ...]:
    graph, origin = call.graph, call.origin
    return (
        call.index, call.kind, "raised" if call.error else duration(call.time),
        short_frame(origin),
        call.kernel_name, (graph.name or graph.id) if graph else "", call.step, call.phase,
    )  # fmt: skip
