"""A Choreo file to one C++ translation unit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.choreo.syntax.parser import parse
from kernelscope.gcu.choreo.syntax.walk import is_atomic, nodes

from .declared.unwritten import check_unwritten
from .function import CppFunction, FunctionCode
from .values import RESERVED, is_in, line_mark
from .waits import check_waits

_OWN_HEADER = '#include "choreo.h"'


@dataclass(frozen=True)
class Translation:
    """C++ text, and what is known of its functions."""

    cpp: str
    functions: tuple[FunctionCode, ...]

    def function(self, name: str) -> FunctionCode:
        return next(f for f in self.functions if f.name == name)


def translate(
    source: str,
    file: str = "",
    *,
    elide: bool = True,
    checked: bool = True,
    located: bool = False,
    in_blocks: bool = False,
    as_threads: bool = False,
) -> Translation:
    """Check a Choreo program and turn it into C++; `elide=False` makes every DMA a real copy.

    Indices that may be out of bounds are checked when they are used, unless
    `checked=False` says that they are right. With `located`, the C++ says which line of
    `file` it comes from, so that the messages of the C++ compiler point there. With
    `in_blocks`, loops over functions such as sin become loops over blocks of numbers. With
    `as_threads`, the threads of each block are threads of the machine, also where none waits for another.

    Example:
        print(translate(Path("kernel.co").read_text(encoding="utf-8")).cpp)
    """
    program = parse(source, file)
    try:
        return _translate(program, elide, checked, file if located else None, in_blocks, as_threads)
    except ChoreoError as error:
        raise error.within(source, file) from None


def _translate(
    program: tree.File, elide: bool, checked: bool, file: str | None, in_blocks: bool, as_threads: bool
) -> Translation:
    parts = ["#define CHOREO_HOST\n" * _has_host(program) + '#include "choreo.h"\n']
    functions: list[FunctionCode] = []
    taken: set[str] = set()
    cpp = _own_cpp(program)
    for item in program.items:
        if isinstance(item, tree.HostCode):
            lines = ["" if line.strip() == _OWN_HEADER else line for line in item.text.splitlines()]
            parts.append(_at(item, file) + "\n".join(lines).rstrip() + "\n")
        elif isinstance(item, tree.DeviceCode):
            parts.append(f"// __cok__\n{_at(item, file)}{item.text}\n")
        else:
            if item.name in taken:
                raise ChoreoError(f"function `{item.name}` is defined twice", item.span)
            if item.name in RESERVED:
                raise ChoreoError(
                    f"`{item.name}` is a word of C++; no function can have this name", item.span
                )
            taken.add(item.name)
            choices = check_waits(item)
            check_unwritten(item)
            if cpp is not None:
                _check_calls(item, cpp, frozenset(f.name for f in program.functions))
            made = CppFunction(item, elide, checked, file, choices, in_blocks, as_threads, cpp)
            functions.append(made.translate())
            parts.append(functions[-1].cpp)
    if any(f.uses_threads for f in functions):
        parts.insert(0, "#define CHOREO_THREADS")
    used = [n for f in program.functions for n in nodes(f.body)]
    if any(isinstance(n, tree.Matrix) for n in used):
        parts.insert(0, "#define CHOREO_FRAGMENTS")
    if any(is_atomic(n) for n in used):
        parts.insert(0, "#define CHOREO_ATOMICS")
    return Translation("\n".join(parts), tuple(functions))


def _at(item: tree.Tree, file: str | None) -> str:
    return "" if file is None else line_mark(item.span.line, file) + "\n"


def _has_host(program: tree.File) -> bool:
    """Whether there is C++ that may use the host header; kernels alone compile faster without it."""
    if any(isinstance(node, tree.Print) for f in program.functions for node in nodes(f.body)):
        return True
    texts = [i.text for i in program.items if isinstance(i, tree.HostCode)]
    lines = [line.strip() for line in "\n".join(texts).splitlines()]
    return any(line and line != _OWN_HEADER and not line.startswith("//") for line in lines)


def _own_cpp(program: tree.File) -> str | None:
    """The C++ of the file; None when it includes files of its own, which may hold anything."""
    texts = [i.text for i in program.items if isinstance(i, tree.HostCode | tree.DeviceCode)]
    cpp = "\n".join(texts).replace(_OWN_HEADER, "")
    return None if re.search(r'^\s*#\s*include\s*"', cpp, re.MULTILINE) else cpp


def _check_calls(function: tree.Function, cpp: str, functions: frozenset[str]) -> None:
    """What is called must be somewhere in the file's C++."""
    for each in nodes(function.body):
        if isinstance(each, tree.Call | tree.CallValue) and not is_in(each.name, cpp):
            if each.name in functions:
                message = f"`{each.name}` is a `__co__` function, which only host code calls"
                raise ChoreoError(f"{message}; write what both need as a kernel in C++", each.span)
            raise ChoreoError(f"there is no kernel `{each.name}` in the C++ of this file", each.span)
