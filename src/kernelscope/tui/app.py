"""The application: one screen upon another, the list of calls at the bottom."""

from __future__ import annotations

from textual.app import App

from kernelscope.model.run import Run

from .calls_screen import CallsScreen


class RunApp(App[None]):
    """Shows one run; with another one, also where the two differ."""

    TITLE = "kernelscope"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #about, #title { height: 1; padding: 0 1; background: $panel; color: $foreground; text-style: bold }
    #said { height: auto; min-height: 1; max-height: 3; padding: 0 1; color: $warning }
    Input { border: none; height: 1; padding: 0 1 }
    #calls { height: 1fr }
    #body { padding: 0 1; height: auto }
    #sides { height: auto; margin: 1 0 }
    """

    def __init__(self, run: Run, other: Run | None = None) -> None:
        super().__init__()
        self._shown, self._other = run, other

    def get_default_screen(self) -> CallsScreen:
        return CallsScreen(self._shown, self._other)
