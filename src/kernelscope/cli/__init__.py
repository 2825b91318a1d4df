"""The command line. One file per command; only the one that is asked for is imported."""

from __future__ import annotations

import argparse
import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from kernelscope import __version__
from kernelscope.errors import RunError

from .command_list import COMMANDS

EPILOG = """\
examples:
  kernelscope run train.py --epochs 1     record a script; what it leaves is in ./kscope-runs
  kernelscope show                        the calls of the newest run
  kernelscope show --call 17              one of them, with arguments and values
  kernelscope report                      one web page of it; kernelscope view serves it
  kernelscope diff                        where the two newest runs first differ
  kernelscope determinism train.py        which kernels do not do the same each time
  kernelscope show --crash                what was executing when it died
  kernelscope shadow train.py             which kernel computes something else than eager
  kernelscope bisect train.py             which part of the compiler makes it fail
  kernelscope repro --call 17             that call alone, as a script of stock torch
  kernelscope reduce train.py             the smallest graph that still fails

RUN is a folder, or the name of a run in ./kscope-runs; left out, it is the newest run.
"""

_ESCAPING = "kernelscope.escaping"
_BREAKABLE = ("strict", "surrogateescape", "backslashreplace")  # not what the user chose, such as "replace"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence; exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"kernelscope: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    _make_streams_safe()
    given = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in given if not word.startswith("-")), "")
    try:
        args = parser_for(name if name in COMMANDS else None).parse_args(given)
        command = getattr(args, "main", None) or load(COMMANDS[name][0]).main
        status = int(command(args))
        sys.stdout.flush()  # here, where it is known what to do when that fails
        return status
    except RunError as error:
        print(f"kernelscope: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `kernelscope show | head`
        _forget_output()
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt as ended:  # or of a signal that a command hears
        return int(getattr(ended, "status", 128 + signal.SIGINT))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _forget_output()
        elif error.errno not in _SEALED and not _lacks_temporary_folder(error):
            raise
        print(f"kernelscope: {_in_words(error)}", file=sys.stderr)
        return 2


_SEALED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EDQUOT)  # what is wrong is the disk


def _lacks_temporary_folder(error: OSError) -> bool:
    return (error.strerror or "").startswith("No usable temporary directory")


def _in_words(error: OSError) -> str:
    if _lacks_temporary_folder(error):
        return f"{error.strerror}; set TMPDIR to a folder that can be written to"
    if error.filename is None:
        return f"cannot write: {error.strerror}"
    verb = "write to" if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT) else "use"
    return f"cannot {verb} {error.filename}: {error.strerror}"


def _forget_output() -> None:
    """What is still to be written would fail once more when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_streams_safe() -> None:
    """Standard output may be closed, or its encoding without the arrows that we print."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # to the end
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in _BREAKABLE:
            codecs.register_error(_ESCAPING, _escaped)
            stream.reconfigure(errors=_ESCAPING)


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """A byte of a file's name as it is, as in the C locale; any other character as Python writes it."""
    assert isinstance(error, UnicodeEncodeError)
    first = error.object[error.start]
    if 0xDC80 <= ord(first) <= 0xDCFF:
        return bytes([ord(first) - 0xDC00]), error.start + 1
    return first.encode("ascii", "backslashreplace").decode("ascii"), error.start + 1


def parser_for(command: str | None) -> Parser:
    """The parser of one command; with None, of all of them by name."""
    parser = Parser(
        prog="kernelscope",
        description="See what a compiled PyTorch program really ran, kernel by kernel and value by value.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kernelscope {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, help) in COMMANDS.items():
        if name == command:
            load(module).add_parser(subparsers)
        elif command is None:
            subparsers.add_parser(name, help=help)
    return parser


def load(module: str) -> Any:
    return import_module(f".{module}", "kernelscope")
