"""`kernelscope choreo check|build|run|fmt FILE.co`, for programs written by hand."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernelscope.gcu.choreo.cpp.to_cpp import Translation
from kernelscope.gcu.choreo.cpp.words.compiler_words import in_words
from kernelscope.gcu.choreo.syntax.tree import HostCode
from kernelscope.native.compiler import NativeError

from . import toolchain
from .choreo import ChoreoError, parse, show, translate
from .races import run_with_races

EPILOG = """\
examples:
  kernelscope choreo check kernel.co        errors, with line and column
  kernelscope choreo build kernel.co        translate to C++ and compile
  kernelscope choreo run kernel.co          run its main(), or each function
  kernelscope choreo run --races kernel.co  which lines race? runs main()
  kernelscope choreo fmt --write kernel.co  format the file
"""

DESCRIPTION = "Work on Choreo programs written by hand, or saved by the gcu backend."
_MAIN = re.compile(r"\bint\s+main\s*\(")


def add_options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("check", "report errors with line and column"),
        ("build", "translate to C++ and compile to FILE.cpp, FILE.o, FILE.so"),
        ("run", "run main(), or each function on numbers 0, 1, 2, …"),
        ("fmt", "print it formatted; with --write, rewrite the file"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("file", metavar="FILE.co", help="a Choreo program")
        if name in ("build", "run"):
            action.add_argument("--no-elide", action="store_true", help="make every DMA a real copy")
        if name == "run":
            text = "run main() and report lines where two threads use the same element at the same time"
            action.add_argument("--races", action="store_true", help=text)
        if name == "build":
            action.add_argument("--target", default="cpu", help="cpu, or choreo for the compiler on the PATH")
        if name == "fmt":
            action.add_argument("--write", action="store_true", help="rewrite the file")


def main(args: argparse.Namespace) -> int:
    """Run one action; 0 when all is well."""
    path = Path(args.file)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror or error
        print(f"kernelscope: cannot read {path}: {why}", file=sys.stderr)
        return 2
    try:
        return int(_ACTIONS[args.action](path, source, args))
    except ChoreoError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{path}: {error.strerror or error}", file=sys.stderr)
    except NativeError as error:
        words = in_words(str(error), source, str(path))
        print(words if words != str(error) else f"{path}: {error}", file=sys.stderr)
    except RuntimeError as error:
        print(f"{path}: {error}", file=sys.stderr)
    return 1


def _check(path: Path, source: str, args: argparse.Namespace) -> int:
    found = translate(source, str(path), located=True)
    toolchain.check(found.cpp, path.parent)  # what is right here is what can be built
    names = ", ".join(f.name for f in found.functions) or "none"
    print(f"{path}: no errors; functions: {names}")
    return 0


def _build(path: Path, source: str, args: argparse.Namespace) -> int:
    translation = translate(source, str(path), elide=not args.no_elide, located=True)
    if args.target != "cpu":
        from .target import hand_over

        print(hand_over(args.target, path))
        return 0
    cpp = path.with_suffix(".cpp")
    cpp.write_text(translation.cpp, encoding="utf-8")
    built = toolchain.build(cpp, path.with_suffix(""))
    for made in (cpp, built.object, built.library):
        print(made)
    return 0


def _run(path: Path, source: str, args: argparse.Namespace) -> int:
    program = parse(source, str(path))
    has_main = any(isinstance(i, HostCode) and _MAIN.search(i.text) for i in program.items)
    if args.races and not has_main:
        raise RuntimeError("--races runs main(), and there is none: write one that calls the function")
    if args.races:
        return run_with_races(path, source)
    translation = translate(source, str(path), elide=not args.no_elide, located=True)
    if has_main:
        return run_main(translation, beside=path.parent)
    return _run_functions(path)


def run_main(
    translation: Translation, flags: tuple[str, ...] = toolchain.FLAGS, beside: Path | None = None
) -> int:
    """Build an executable from a program that has a main(), and run it; `beside`: where its headers are."""
    with tempfile.TemporaryDirectory(prefix="kernelscope-choreo-") as folder:
        source, binary = Path(folder) / "program.cpp", Path(folder) / "program"
        source.write_text(translation.cpp, encoding="utf-8")
        headers = toolchain.headers_in(beside)
        toolchain.run(toolchain.compile_command(*headers, str(source), "-o", str(binary), flags=flags))
        return subprocess.run([str(binary)], check=False).returncode


def _run_functions(path: Path) -> int:
    import torch

    from kernelscope.gcu.execution.program import _DTYPES, load

    program = load(path)
    for code in program.translation.functions:
        given = code.parameters
        values: list[Any] = []
        for a in given:
            if a.dims is None:
                values.append(1)
                continue
            shape = [d if isinstance(d, int) else 4 for d in a.dims]
            count = 1
            for extent in shape:
                count *= extent
            values.append(torch.arange(count).to(_DTYPES[a.type]).reshape(shape))
        result = program.call(code.name, *values)
        print(f"{code.name}({', '.join(a.name for a in given)}), arguments filled with 0, 1, 2, …")
        for a, value in zip(given, values, strict=True):
            if a.role != "in" and a.dims is not None:
                print(f"{a.name} = {value}")
        if result is not None:
            print(result)
    return 0


def _fmt(path: Path, source: str, args: argparse.Namespace) -> int:
    text = show(parse(source, str(path), as_written=True))
    if args.write:
        if text != source:
            path.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


_ACTIONS = {"check": _check, "build": _build, "run": _run, "fmt": _fmt}
