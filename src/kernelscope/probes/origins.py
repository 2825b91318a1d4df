"""Which line of the user's program a launch comes from."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import re
import sys
import threading
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import thread
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from importlib.util import find_spec
from types import CodeType

import torch

from kernelscope.events import Frame
from kernelscope.text.program_files import GENERATED

TRACE_LINE = re.compile(
    r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+?)[ \t]*'
    r"(?:\n {4}[ \t]*(?P<text>.+?)[ \t]*)?$",
    re.MULTILINE,
)
_MADE_UP = ("<frozen", "<kernelscope", "<eval_with_key>", "<torch", "<__array_function__", "<decorator")
_DEPRECATES = "typing_extensions.py"  # wraps functions of torch that have a new name
_CALL_OTHERS = frozenset(module.__file__ for module in (contextlib, threading, thread))
_LAUNCH_FOR_USERS = ("triton", "helion")  # packages that launch kernels for the line that calls them
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@cache
def _library_folders() -> tuple[str, ...]:
    folders = [os.path.dirname(os.path.abspath(torch.__file__)), _OURS]
    for name in _LAUNCH_FOR_USERS:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            folders.append(os.path.dirname(os.path.abspath(spec.origin)))
    return tuple(f + os.sep for f in folders)


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    # Code from a terminal or a notebook is the user's; code that Python, torch or Helion made up is not.
    name = os.path.basename(file)
    if GENERATED.fullmatch(name) is not None or name == _DEPRECATES or file in _CALL_OTHERS:
        return False
    return not file.startswith((*_library_folders(), *_MADE_UP))


def user_first(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Innermost first, and the user's own lines before the library's that they called."""
    own = [f for f in frames if is_users(f.file)]
    return tuple(own + [f for f in frames if not is_users(f.file)])


@lru_cache(maxsize=4096)
def frames_of_trace(trace: str) -> tuple[Frame, ...]:
    """The lines in a stack as Python prints it, innermost first, the user's own before a library's."""
    found = TRACE_LINE.finditer(trace)
    frames = [_where_it_is_now(Frame(m["file"], int(m["line"]), m["function"]), m["text"]) for m in found]
    return user_first(frames[::-1])


class LineMap:
    """Wrapper line to the user's stack; a graph from a cache has the stack of the first equal one.

    `compiled` is the user's code that the graph was made from, where that is known.
    """

    def __init__(
        self, linemap: Sequence[tuple[int, str | None]] | None, compiled: CodeType | None = None
    ) -> None:
        self._compiled = compiled
        # Several entries may stand before one line: the last is the line's own, so their order matters.
        entries = sorted((e for e in linemap or () if isinstance(e[0], int)), key=lambda e: e[0])
        self._lines = [line for line, _ in entries]
        self._traces = [trace or "" for _, trace in entries]

    def frames(self, line: int) -> tuple[Frame, ...]:
        return self._frames(bisect_right(self._lines, line) - 1)

    def frames_of_group(self, line: int, previous: int, following: int | None) -> tuple[Frame, ...]:
        """For a C++ kernel, whose launch is written only once the next node that cannot join it was entered.

        So the last entry before it is that node's, where the `following` statement has no entry of its own,
        and the kernel's own nodes have theirs between it and the `previous` launch.
        """
        first, last = bisect_right(self._lines, previous), bisect_right(self._lines, line) - 1
        if following is not None and bisect_right(self._lines, following) - 1 == last > first:
            last -= 1
        return next((f for i in range(last, first - 1, -1) if (f := self._frames(i))), ())

    def nearest_frames(self, line: int) -> tuple[Frame, ...]:
        """For a launch made of nodes without a stack, as some passes insert: what was computed before it."""
        position = bisect_right(self._lines, line) - 1
        nearby = [*range(position, -1, -1), *range(position + 1, len(self._lines))]
        return next((f for i in nearby if (f := self._frames(i))), ())

    def _frames(self, position: int) -> tuple[Frame, ...]:
        if position < 0:
            return ()
        found = TRACE_LINE.finditer(self._traces[position])
        traced = [(Frame(m["file"], int(m["line"]), m["function"]), m["text"]) for m in found]
        frames = [_where_it_is_now(frame, text) for frame, text in traced]
        if frames and self._compiled is not None:
            frames[0] = self._in_code(frames[0], traced[0][1], self._compiled)
        return user_first(frames[::-1])

    def _in_code(self, frame: Frame, text: str | None, code: CodeType) -> Frame:
        """The same line in the code that was really compiled, when the trace tells of its twin."""
        first, lines = code.co_firstlineno, self._compiled_lines
        if not lines or (frame.file == code.co_filename and first <= frame.line < first + len(lines)):
            return frame
        same = [first + i for i, line in enumerate(lines) if line.strip() == text]
        return Frame(code.co_filename, same[0] if same else first, code.co_name)

    @cached_property
    def _compiled_lines(self) -> list[str]:
        """Dynamo's own code objects know few lines, so the extent of a function is taken from its text."""
        code = self._compiled
        if code is None:
            return []
        return inspect.getblock(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :])


def _where_it_is_now(frame: Frame, text: str | None) -> Frame:
    """A line that moved since it was compiled: Inductor's cache keeps the stack of the first compilation."""
    lines = linecache.getlines(frame.file) if text else []
    if not lines or (frame.line <= len(lines) and lines[frame.line - 1].strip() == text):
        return frame
    same = [number for number, line in enumerate(lines, start=1) if line.strip() == text]
    return replace(frame, line=min(same, key=lambda n: abs(n - frame.line))) if same else frame


def compiled_user_code() -> CodeType | None:
    """The innermost code of the user's on the stack now, if it is what Dynamo made of it."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if _is_users_file(code.co_filename):
            return code if any(name.startswith("__compiled_fn") for name in code.co_names) else None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def caller_frames(limit: int = 32) -> tuple[Frame, ...]:
    """The user's lines on the stack now, innermost first."""
    frames: list[Frame] = []
    frame = sys._getframe(1)
    while frame is not None and limit:
        file = frame.f_code.co_filename
        if is_users(file):
            frames.append(Frame(file, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
        limit -= 1
    return tuple(frames)


def caller_key() -> tuple[str, str, int]:
    """Identifies the user's line on the stack now, cheaply."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if _is_users_file(code.co_filename):
            return code.co_filename, code.co_name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "", "", 0


@cache
def _is_users_file(file: str) -> bool:
    return is_users(file)
