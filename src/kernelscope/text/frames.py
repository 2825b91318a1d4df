"""Lines of the user's program as text."""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelscope.events import Frame


def short_frame(frame: Frame | None) -> str:
    """ "train.py:12"; "?" where it is not known."""
    return f"{os.path.basename(frame.file)}:{frame.line}" if frame else "?"


def source_line(frame: Frame) -> str:
    """The line's code, from the user's file; "" where the run is not this user's own, or the file is gone."""
    return "" if frame.is_foreign else linecache.getline(frame.file, frame.line).strip()


def foreign(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The same lines, of a run that was made by somebody else: it may name any file of this machine."""
    return tuple(replace(frame, is_foreign=True) for frame in frames)


def innermost(frames: Sequence[Frame]) -> str:
    """The same of the first of several."""
    return short_frame(frames[0] if frames else None)


def frame_form(frame: Frame | None) -> dict[str, Any] | None:
    """As JSON has it."""
    return None if frame is None else {"file": frame.file, "line": frame.line, "function": frame.function}
