"""The recordings of this process that are open. A forked child has copies, which it closes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Protocol

from kernelscope.compiler_control.forced_settings import STAGE_SETTINGS
from kernelscope.config import Config
from kernelscope.probes.eager.unseen_operators import WATCH
from kernelscope.probes.probe_list import PROBES
from kernelscope.probes.python_wrappers.unseen_graphs import FIRST_GRAPH, InChildren

from .sinks import Sink


class OpenRecording(Protocol):
    is_open: bool
    ranges: Any  # None where it gives a profiler no ranges
    sink: Sink
    in_children: InChildren
    config: Config

    def step(self, *, by_user: bool = False) -> None: ...


OPEN: list[OpenRecording] = []
_forks_watched = False


def watch_forks() -> None:
    global _forks_watched
    FIRST_GRAPH.remove()  # in a forked child that now records for itself
    WATCH.tell(None)
    if not _forks_watched:
        os.register_at_fork(after_in_child=_close_copies)
        _forks_watched = True


def _close_copies() -> None:
    """A forked child has a copy of its parent's recordings; it closes them and records nothing.

    All that it tells them is that it ran a compiled graph, or operators that they would have recorded.
    """
    if OPEN:
        parents = [recording.in_children for recording in OPEN]
        of_operators = [recording.in_children for recording in OPEN if recording.config.ops == "all"]
        for recording in OPEN:
            recording.is_open = False
            recording.sink.forget()
        OPEN.clear()
        STAGE_SETTINGS.forget_in_child()
        PROBES.forget_in_child()
        with suppress(Exception):  # a torch whose graphs are called in another way
            FIRST_GRAPH.watch(parents)
        for parent in of_operators:
            WATCH.tell(parent.operators)
