"""The command line: one file per command, and only the one that is used is imported."""

from __future__ import annotations

import argparse
import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from kernelscope.errors import RunError
from kernelscope.text.terminal_size import fitted
from kernelscope.text.visible import visible_stream

from .parsing import parsed, parser_for
from .questions import QUESTIONS

__all__ = ["main", "parser_for"]

_ESCAPING = "kernelscope.escaping"
_BREAKABLE = ("strict", "surrogateescape", "backslashreplace")  # not what the user chose, such as "replace"


def main(argv: Sequence[str] | None = None) -> int:
    _make_streams_safe()
    given = list(sys.argv[1:] if argv is None else argv)
    before = sys.stdout
    if not before.isatty():
        return _answer(given)
    from .screen import Screen

    sys.stdout = Screen(before)
    try:
        return _answer(given)
    finally:
        sys.stdout = before


def _answer(given: Sequence[str]) -> int:
    try:
        if not given:
            print(QUESTIONS, end="")
            return _finish(0)
        args = parsed(given)
        _lay_out(args)
        return _finish(_run(args))
    except SystemExit:  # help is printed, or a wrong argument
        _finish(0)
        raise
    except RunError as error:
        _finish(2)
        _complain(str(error))
        return 2
    except BrokenPipeError:  # `kernelscope show | head`, or a pager that the user has left
        if getattr(sys.stdout, "was_quit", False):
            return _finish(0)
        _forget_output()
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt as ended:  # Ctrl-C, or a signal that a command handles
        return _finish(int(getattr(ended, "status", 128 + signal.SIGINT)))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _forget_output()
        elif error.errno not in _SEALED and not _lacks_temporary_folder(error) and not _lacks_folder():
            raise
        _complain(_in_words(error))
        return 2


def _run(args: argparse.Namespace) -> int:
    """The command; what a run that we did not make contains is not a mistake of ours."""
    try:
        return int(args.main(args))
    except (RunError, OSError):
        raise
    except Exception as error:
        from .arguments import why_damaged

        why = why_damaged(args, error)
        if not why:
            raise
        raise RunError(why) from None


def _lay_out(args: argparse.Namespace) -> None:
    """How much of it a terminal is shown at once."""
    screen: Any = sys.stdout
    if not hasattr(screen, "show_everything"):
        return
    if getattr(args, "json", False) or getattr(args, "wide", False):
        screen.show_everything()
    else:
        screen.pages = args.pages


def _finish(status: int) -> int:
    """Write what is left here, where a failure is handled."""
    if hasattr(sys.stdout, "finish"):
        sys.stdout.finish()
    else:
        sys.stdout.flush()
    return status


def _complain(text: str) -> None:
    print(fitted(f"kernelscope: {text}", sys.stderr), file=sys.stderr)


_SEALED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EDQUOT)  # the disk refuses


def _lacks_temporary_folder(error: OSError) -> bool:
    return (error.strerror or "").startswith("No usable temporary directory")


def _lacks_folder() -> bool:
    """Whether the folder in which the command was given has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _in_words(error: OSError) -> str:
    if _lacks_folder():
        return "the current folder no longer exists; change to one that does"
    if _lacks_temporary_folder(error):
        return f"{error.strerror}; set TMPDIR to a writable directory"
    if error.filename is None:
        return f"cannot write: {error.strerror}"
    verb = "write to" if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT) else "use"
    return f"cannot {verb} {error.filename}: {error.strerror}"


def _forget_output() -> None:
    """Discard unwritten output: Python would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_streams_safe() -> None:
    """Standard output may be closed, or its encoding without the arrows that we print.

    Nor may anything in a run reach the terminal as an escape sequence.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # to the end
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in _BREAKABLE:
            codecs.register_error(_ESCAPING, _escaped)
            stream.reconfigure(errors=_ESCAPING)
        setattr(sys, name, visible_stream(getattr(sys, name)))


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """A byte of a file's name as it is, as in the C locale; any other character as Python writes it."""
    assert isinstance(error, UnicodeEncodeError)
    first = error.object[error.start]
    if 0xDC80 <= ord(first) <= 0xDCFF:
        return bytes([ord(first) - 0xDC00]), error.start + 1
    return first.encode("ascii", "backslashreplace").decode("ascii"), error.start + 1
