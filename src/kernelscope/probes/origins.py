"""Which line of the user's program a launch comes from."""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache

import torch

from ..events import Frame

_TRACE_LINE = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@cache
def _library_folders() -> tuple[str, ...]:
    folders = [os.path.dirname(os.path.abspath(torch.__file__)), _OURS]
    try:
        import triton
    except ImportError:
        return tuple(f + os.sep for f in folders)
    return tuple(f + os.sep for f in [*folders, os.path.dirname(os.path.abspath(triton.__file__))])


def is_users(file: str) -> bool:
    return not file.startswith(_library_folders()) and not file.startswith("<")


def user_first(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Innermost first, and the user's own lines before the library's that they called."""
    own = [f for f in frames if is_users(f.file)]
    return tuple(own + [f for f in frames if not is_users(f.file)])


class LineMap:
    """Wrapper line to the user's stack, as Inductor keeps it beside the generated code."""

    def __init__(self, linemap: Sequence[tuple[int, str]] | None) -> None:
        entries = sorted((line, trace) for line, trace in (linemap or ()) if isinstance(line, int))
        self._lines = [line for line, _ in entries]
        self._traces = [trace for _, trace in entries]

    def frames(self, line: int) -> tuple[Frame, ...]:
        position = bisect_right(self._lines, line)
        if position == 0 or not self._traces[position - 1]:
            return ()
        found = _TRACE_LINE.finditer(self._traces[position - 1])
        frames = [Frame(m["file"], int(m["line"]), m["function"].strip()) for m in found]
        return user_first(frames[::-1])


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
