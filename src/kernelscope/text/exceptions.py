"""What is kept and shown of an exception: its text, and the line at which it was raised."""

from __future__ import annotations

from types import TracebackType

from .program_files import is_program_file

_MOST_TEXT, _MOST_PLACE, _MOST_LINE = 2000, 500, 200


def noted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> dict[str, str]:
    """By name in the run's metadata."""
    return {
        "exception": f"{kind.__name__}: {error}"[:_MOST_TEXT],
        "exception_at": _place(trace)[:_MOST_PLACE],
    }


def in_one_line(error: BaseException) -> str:
    """What a compiler's exception wraps, and of a C++ compiler's output the first error."""
    while inner := _wrapped(error):
        error = inner
    output = str(getattr(error, "output", "") or "")
    lines = [line for line in output.splitlines() if " error: " in line] or str(error).strip().splitlines()
    return f"{type(error).__name__}: {(lines or [''])[0][:_MOST_LINE]}"


def _wrapped(error: BaseException) -> BaseException | None:
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        return inner
    is_dynamos = type(error).__module__.startswith("torch._dynamo")  # any other's cause is less than itself
    return error.__cause__ if is_dynamos else None


def _place(trace: TracebackType | None) -> str:
    """The innermost line of the user's program in a traceback, or else the outermost line."""
    found = ""
    while trace is not None:
        code, line = trace.tb_frame.f_code, trace.tb_lineno
        if not found or is_program_file(code.co_filename):
            found = f"{code.co_filename}:{line} in {code.co_name}"
        trace = trace.tb_next
    return found
