"""Python code that begins on another thread while operators are recorded: the mode is put there too.

Torch keeps dispatch modes per thread. Threads that Python starts, work of a thread pool and callbacks of
torch's futures (which run on a thread of a process group, for example) pass through functions with a hook.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import thread as pools
from typing import Any

from kernelscope.probes.bus import BUS
from kernelscope.probes.notifier import CallbackOf
from kernelscope.probes.origins import caller_frames
from kernelscope.probes.patching import Patch, PatchSet

_FUTURE = "torch._C:Future"
_OWN = "kernelscope"  # how the names of our own threads begin
_Around = Callable[[Callable[[], Any]], Any]


class OtherThreads(PatchSet):
    """The hooks; `around` runs what it is given with the mode on the current thread."""

    def __init__(self, around: _Around) -> None:
        self._around = around
        super().__init__(
            Patch("threading:Thread._bootstrap_inner", self._thread),
            Patch("concurrent.futures.thread:_WorkItem.run", self._work),
            Patch(f"{_FUTURE}.then", self._taking_callback),
            Patch(f"{_FUTURE}.add_done_callback", self._taking_callback),
        )

    def _thread(self, original: Any) -> Any:
        def begins(thread: threading.Thread) -> Any:
            # A worker of a pool may outlive the recording: its work is looked at piece by piece.
            is_worker = getattr(thread, "_target", None) is pools._worker
            if is_worker or thread.name.startswith(_OWN):
                return original(thread)
            return self._around(lambda: original(thread))

        return begins

    def _work(self, original: Any) -> Any:
        def run(item: Any, *args: Any) -> Any:
            return self._around(lambda: original(item, *args))

        return run

    def _taking_callback(self, original: Any) -> Any:
        def take(future: Any, callback: Any) -> Any:
            asked = CallbackOf(BUS.phase(), caller_frames())

            def called(*args: Any) -> Any:
                return self._around(lambda: _on_behalf_of(asked, callback, *args))

            return original(future, called)

        return take


def _on_behalf_of(asked: CallbackOf, callback: Any, *args: Any) -> Any:
    here = BUS.here
    before, here.callback_of = here.callback_of, asked
    try:
        return callback(*args)
    finally:
        here.callback_of = before
