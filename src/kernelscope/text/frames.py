"""Lines of the user's program as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from kernelscope.events import Frame


def short_frame(frame: Frame | None) -> str:
    """ "train.py:12"; "?" where it is not known."""
    return f"{os.path.basename(frame.file)}:{frame.line}" if frame else "?"


def innermost(frames: Sequence[Frame]) -> str:
    """The same of the first of several."""
    return short_frame(frames[0] if frames else None)


def frame_form(frame: Frame | None) -> dict[str, Any] | None:
    """As JSON has it."""
    return None if frame is None else {"file": frame.file, "line": frame.line, "function": frame.function}
