"""A page of ours in torch's distributed debug server: what every rank has recorded so far."""

from __future__ import annotations

import json
from collections.abc import Callable

from kernelscope.after_import import after_import
from kernelscope.errors import RunError
from kernelscope.events import Finding
from kernelscope.probes.distributed import debug_server as torch_server
from kernelscope.recording.state import process_state

from .ranks_page import ANSWER, RanksPage

_LATE = (
    "torch's debug server has been started already, without the page of kernelscope; call add_page() before "
    "start_debug_server()"
)


def add_page() -> None:
    """In this process; RunError with a sentence where that cannot be."""
    if why := torch_server.why_no_server():
        raise RunError(f"kernelscope has no page in torch's debug server: {why}")
    torch_server.answer_with(ANSWER, _answer)
    if torch_server.has_started():
        raise RunError(_LATE)
    after_import(torch_server.PAGES, lambda: torch_server.add_page(RanksPage))


def add_page_when_used(tell: Callable[[Finding], None], leave: Callable[[], None]) -> None:
    """Once the program imports torch's debug server: one that never does pays nothing.

    `leave` ends the recording of a process that shows torch's pages and runs nothing of the program.
    """

    def contained(action: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            try:
                action()
            except Exception as error:  # of no concern to the program
                tell(Finding("no-debug-page", str(error)))

        return act

    after_import(torch_server.SERVER, contained(add_page))
    after_import(torch_server.FRONTEND, contained(lambda: torch_server.before_frontend(leave)))


def _answer() -> str:
    try:
        return json.dumps(process_state())
    except Exception as error:  # torch's server has no place for it
        return json.dumps({"error": f"{type(error).__name__}: {error}"})
