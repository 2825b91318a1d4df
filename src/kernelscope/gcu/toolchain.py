"""Choreo's C++ to an object file and a shared library."""

from __future__ import annotations

import platform
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelscope import config
from kernelscope.native import compiler
from kernelscope.native.sources import joined

from .torch_mathematics import compile_flags, link_flags

HEADER = Path(__file__).parent / "choreo" / "choreo.h"
# As wide as torch's own; GCC prefers half of that on most processors that have it.
_WIDE = ("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()
# Signed overflow wraps, as in torch.
FLAGS = (
    "-std=c++17", "-O3", *compiler.NATIVE, "-fno-math-errno", "-fno-trapping-math",
    "-funroll-loops", *_WIDE, "-ffp-contract=fast", "-fwrapv", "-fopenmp", "-fPIC",
)  # fmt: skip
# A kernel called `add` is this library's, whatever else the process has under that name.
_OWN_SYMBOLS = ("-Wl,-Bsymbolic",) if sys.platform.startswith("linux") else ()


@dataclass(frozen=True)
class Built:
    object: Path
    library: Path
    commands: tuple[str, ...]


def header_text() -> str:
    """choreo.h as one file, which needs no other header of ours."""
    return joined(HEADER)


def identity(flags: Sequence[str] = FLAGS) -> str:
    """Everything besides the program that decides what the compiler makes of it, beside torch."""
    given = (*flags, *compile_flags(), *link_flags())
    return f"{compiler.identity(compiler.compiler(), given)}\0{header_text()}"


def build(source: Path, stem: Path, *, seconds: int | None = None, beside_torch: bool = False) -> Built:
    """Compile a translation unit to `stem.o` and `stem.so`; `beside_torch`: for a process that has torch."""
    object_, library = stem.with_suffix(".o"), stem.with_suffix(".so")
    given, linked = (compile_flags(), link_flags()) if beside_torch else ((), ())
    steps = [
        compile_command(*given, "-c", str(source), "-o", str(object_)),
        compile_command("-shared", *_OWN_SYMBOLS, str(object_), "-o", str(library), *linked),
    ]
    for step in steps:
        run(step, seconds)
    return Built(object_, library, tuple(shlex.join(step) for step in steps))


def headers_in(folder: Path | None) -> list[str]:
    """Where the headers of a program that is compiled elsewhere are found."""
    return [] if folder is None else ["-iquote", str(folder.resolve())]


def check(cpp: str, beside: Path | None = None) -> None:
    """Let the compiler look at a translation without building it; NativeError with its messages."""
    with tempfile.TemporaryDirectory(prefix="kernelscope-choreo-") as folder:
        source = Path(folder) / "program.cpp"
        source.write_text(cpp, encoding="utf-8")
        run(compile_command("-fsyntax-only", *headers_in(beside), str(source)))


def compile_command(*arguments: str, flags: Sequence[str] = FLAGS) -> list[str]:
    return [*compiler.compiler(), *flags, f"-I{HEADER.parent}", *arguments]


def run(command: Sequence[str], seconds: int | None = None) -> None:
    """Run the compiler, for as long as CONDUCTOR_COMPILE_SECONDS says unless `seconds` is given."""
    limit = config.conductor_from_environment().compile_seconds if seconds is None else seconds
    compiler.compile_cpp(command, limit, advice="; CONDUCTOR_COMPILE_SECONDS sets the limit")
