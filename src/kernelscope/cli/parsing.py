"""Words of a command line to arguments: parsers, their help, and what a wrong word may have meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from kernelscope import __version__
from kernelscope.text.suggestions import did_you_mean
from kernelscope.text.terminal_size import fitted
from kernelscope.text.widths import wrapped

from .arguments import RAY_ADDRESS
from .command_list import COMMANDS

EPILOG = """\
examples:
  kernelscope why train.py --epochs 1     find out what is wrong with a script
  kernelscope run train.py --epochs 1     record a script; runs are kept in ./kscope-runs
  kernelscope show                        list the calls of the newest run
  kernelscope show --call 17              show one call with its arguments and values
  kernelscope show --crash                show how the program ended, and what was executing
  kernelscope report                      write one web page; kernelscope view serves it
  kernelscope diff                        find where the two newest runs first differ
  kernelscope determinism train.py        find kernels whose results vary from run to run
  kernelscope shadow train.py             find the kernel whose result differs from eager
  kernelscope bisect train.py             find the part of the compiler that makes it fail
  kernelscope repro --call 17             write a script of stock torch with that call alone
  kernelscope reduce train.py             find the smallest graph that still fails

RUN is a folder, or the name of a run in ./kscope-runs. The default is the newest run.
"""

_WIDEST_HELP = 110
_CHOICES = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
_OPTIONS = ("-h", "--help", "--version")  # before a command
_UNKNOWN = "unrecognized arguments: "


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are filled to the width; lines of examples stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        room = min(width + 2, _WIDEST_HELP)  # argparse keeps two columns free
        lines: list[str] = []
        for line in text.splitlines():
            follows = lines and lines[-1] and not lines[-1].startswith(" ") and not lines[-1].endswith(":")
            if line and not line.startswith(" ") and follows:
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        return "\n".join(piece for line in lines for piece in _pieces(line, room))


def _pieces(line: str, room: int) -> list[str]:
    if line and not line.startswith(" "):  # a paragraph
        return [piece.strip() for piece in wrapped(line, room)]
    return list(wrapped(line, room, rightmost=0.62))


class Parser(argparse.ArgumentParser):
    """Options stand anywhere among the runs; a wrong argument is one sentence, and exit status 2."""

    _splits = False  # while words and options are taken apart

    def parse_known_args(self, args: Any, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """argparse itself takes no more words after `RUN --json`."""
        positional = [each.nargs for each in self._get_positional_actions()]
        several = positional in (["+"], ["?", "?"])  # a script has all words after its own
        if self._splits or not several or "--" in args:
            return super().parse_known_args(args, namespace)
        self._splits = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._splits = False

    def _parse_optional(self, arg_string: str) -> Any:
        """An option with a value that may be left out has it after "=": the next word is the script."""
        if arg_string.startswith("--ray="):
            arg_string = RAY_ADDRESS + arg_string.removeprefix("--ray")
        return super()._parse_optional(arg_string)

    def error(self, message: str) -> NoReturn:
        text = self._with_suggestion(message)
        more = f" See {self.prog} --help" if text.endswith("?") else f"; see {self.prog} --help"
        self.exit(2, fitted(f"kernelscope: {text}{more}", sys.stderr) + "\n")

    def _with_suggestion(self, message: str) -> str:
        choice = _CHOICES.search(message)
        if choice:
            word, known = choice.groups()
            near = did_you_mean(word, re.findall(r"[\w-]+", known))
            if near and len(known) > 60:
                message = message[: choice.start()] + f"there is no {word!r}"
            return message + near
        if message.startswith(_UNKNOWN):
            word = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
            known_options = [name for name in self._option_string_actions if name.startswith("--")]
            return f"unknown argument {word}{did_you_mean(word, known_options)}"
        return message


def parsed(given: Sequence[str]) -> argparse.Namespace:
    name = next((word for word in given if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS and given[0] == name:
        near = did_you_mean(name, COMMANDS)
        parser_for(None).error(f"there is no command {name!r}{near}")
    parser = parser_for(name if name in COMMANDS else None)
    if given[0] != name and not any(option.startswith(given[0]) for option in _OPTIONS):
        parser.error(_UNKNOWN + given[0])
    found, unknown = parser.parse_known_args(given)
    args: argparse.Namespace = found
    if unknown:
        args.parser.error(_UNKNOWN + " ".join(unknown))
    return args


def parser_for(command: str | None) -> Parser:
    """The parser of one command; with None, of all of them by name."""
    parser = Parser(
        prog="kernelscope",
        description="Debug compiled PyTorch programs: what really ran, kernel by kernel and value by value.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
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
        formatter_class=HelpFormatter,
    )
    module.add_options(parser)
    parser.set_defaults(main=module.main, parser=parser, pages=getattr(module, "PAGES", False))


def load(module: str) -> Any:
    return import_module(f".{module}", "kernelscope")
