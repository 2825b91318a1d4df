"""Compiled graphs that no recording sees: in forked children, and those that began before it opened."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

from kernelscope.events import Finding
from kernelscope.probes.patching import Patch, PatchSet, resolve

_CALL = "torch._inductor.output_code:CompiledFxGraph.__call__"
_QUALIFIED = _CALL.partition(":")[2]
_HOOKING = os.path.join("python_wrappers", "compiled_graphs.py")
_FORKED = Finding(
    "unseen-graph",
    "a process that this one forked ran compiled code, whose launches are not recorded: a forked child "
    'records nothing. Start it with "spawn" under `kernelscope run`, or open a recording in it',
)


_FORKED_OPERATORS = Finding(
    "unseen-operators",
    "a process that this one forked, such as a worker of a DataLoader, ran eager operators, which are not "
    'recorded: a forked child records nothing. Start it with "spawn" under `kernelscope run`, or open a '
    "recording in it",
)


class InChildren:
    """Bytes that a process shares with the children that it forks: whether one ran a graph, or operators."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2)
        self._operators = ctypes.c_char.from_buffer(self._memory, 1)

    @property
    def operators(self) -> int:
        """The address of the byte for operators."""
        return ctypes.addressof(self._operators)

    def ran(self) -> None:
        self._memory[0] = 1

    @property
    def finding(self) -> Finding | None:
        if self._memory[0]:
            return _FORKED
        return _FORKED_OPERATORS if self._memory[1] else None


class FirstGraph(PatchSet):
    """In a forked child: tells the recordings of its parent that a compiled graph ran here, and is gone."""

    def __init__(self) -> None:
        super().__init__(Patch(_CALL, self._telling))
        self._shared: tuple[InChildren, ...] = ()

    def watch(self, shared: Iterable[InChildren]) -> None:
        self._shared = tuple(shared)
        self.install()

    def _telling(self, original: Any) -> Any:
        def call(compiled: Any, inputs: Any) -> Any:
            for each in self._shared:
                each.ran()
            if getattr(*resolve(_CALL)) is call:  # nothing else has been put over it
                self.remove()
            return original(compiled, inputs)

        return call


FIRST_GRAPH = FirstGraph()


def begun_before() -> Finding | None:
    """Call it before the probes are installed: what executes now does so as Inductor wrote it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    within = [names.get(ident, str(ident)) for ident, frame in _frames_of_threads().items() if _is_in(frame)]
    if not within:
        return None
    where = ", ".join(within)
    return Finding(
        "unseen-graph",
        f"a compiled graph was executing when the recording opened (thread {where}); its remaining "
        "launches are not recorded",
    )


def _frames_of_threads() -> dict[int, FrameType]:
    """What each thread executes.

    Python holds a lock meanwhile that the end of a `threading.local` waits for. If it also collected garbage,
    and such an object were in it, this would wait forever.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _is_in(frame: FrameType | None) -> bool:
    while frame is not None:
        code, caller = frame.f_code, frame.f_back
        if code.co_qualname == _QUALIFIED and code.co_filename.endswith("output_code.py"):
            # Under an earlier recording it was entered with hooks, which report to this one too.
            return caller is None or not caller.f_code.co_filename.endswith(_HOOKING)
        frame = caller
    return False
