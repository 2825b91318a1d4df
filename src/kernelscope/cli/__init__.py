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
from importlib import import_module
from typing import Any, NoReturn

from kernelscope import __version__
from kernelscope.errors import RunError
from kernelscope.text.visible import visible_stream

from .command_list import COMMANDS

EPILOG = """\
examples:
  kernelscope run train.py --epochs 1     record a script; runs are kept in ./kscope-runs
  kernelscope show                        list the calls of the newest run
  kernelscope show --call 17              show one call with its arguments and values
  kernelscope show --crash                show what was executing when the program died
  kernelscope report                      write one web page; kernelscope view serves it
  kernelscope diff                        find where the two newest runs first differ
  kernelscope determinism train.py        find kernels whose results vary from run to run
  kernelscope shadow train.py             find the kernel whose result differs from eager
  kernelscope bisect train.py             find the part of the compiler that makes it fail
  kernelscope repro --call 17             write a script of stock torch with that call alone
  kernelscope reduce train.py             find the smallest graph that still fails

RUN is a folder, or the name of a run in ./kscope-runs. The default is the newest run.
"""

_ESCAPING = "kernelscope.escaping"
_BREAKABLE = ("strict", "surrogateescape", "backslashreplace")  # not what the user chose, such as "replace"


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one sentence; exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"kernelscope: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    _make_streams_safe()
    given = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in given if not word.startswith("-")), "")
    try:
        args = parser_for(name if name in COMMANDS else None).parse_args(given)
        status = int(args.main(args))
        sys.stdout.flush()  # here, where a failure is handled
        return status
    except RunError as error:
        print(f"kernelscope: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `kernelscope show | head`
        _forget_output()
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt as ended:  # Ctrl-C, or a signal that a command handles
        return int(getattr(ended, "status", 128 + signal.SIGINT))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _forget_output()
        elif error.errno not in _SEALED and not _lacks_temporary_folder(error):
            raise
        print(f"kernelscope: {_in_words(error)}", file=sys.stderr)
        return 2


_SEALED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EDQUOT)  # the disk refuses


def _lacks_temporary_folder(error: OSError) -> bool:
    return (error.strerror or "").startswith("No usable temporary directory")


def _in_words(error: OSError) -> str:
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


def parser_for(command: str | None) -> Parser:
    """The parser of one command; with None, of all of them by name."""
    parser = Parser(
        prog="kernelscope",
        description="Debug compiled PyTorch programs: what really ran, kernel by kernel and value by value.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kernelscope {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, help) in COMMANDS.items():
        if name == command:
            _add_command(subparsers, name, load(module))
        elif command is None:
            subparsers.add_parser(name, help=help)
    return parser


def _add_command(subparsers: argparse._SubParsersAction[Parser], name: str, module: Any) -> None:
    usage = getattr(module, "USAGE", None)
    parser = subparsers.add_parser(
        name,
        description=module.DESCRIPTION,
        usage=usage and f"kernelscope {name} {usage}",
        epilog=module.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)
    parser.set_defaults(main=module.main)


def load(module: str) -> Any:
    return import_module(f".{module}", "kernelscope")
