"""What a run keeps of an exception: its text, and the line at which it was raised."""

from __future__ import annotations

from types import TracebackType

from .program_files import is_program_file

_MOST_TEXT, _MOST_PLACE = 2000, 500


def noted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> dict[str, str]:
    """By name in the run's metadata."""
    return {
        "exception": f"{kind.__name__}: {error}"[:_MOST_TEXT],
        "exception_at": _place(trace)[:_MOST_PLACE],
    }


def _place(trace: TracebackType | None) -> str:
    """The innermost line of the user's program in a traceback, or else the outermost line."""
    found = ""
    while trace is not None:
        code, line = trace.tb_frame.f_code, trace.tb_lineno
        if not found or is_program_file(code.co_filename):
            found = f"{code.co_filename}:{line} in {code.co_name}"
        trace = trace.tb_next
    return found
