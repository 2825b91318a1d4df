"""A Choreo file to one C++ translation unit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelscope.gcu.choreo.syntax import tree
from kernelscope.gcu.choreo.syntax.errors import ChoreoError
from kernelscope.gcu.choreo.syntax.parser import parse
from kernelscope.gcu.choreo.syntax.walk import nodes

from .function import CppFunction, FunctionCode
from .waits import check_waits

_OWN_HEADER = '#include "choreo.h"'


@dataclass(frozen=True)
class Translation:
    """C++ text, and what is known of its functions."""

    cpp: str
    functions: tuple[FunctionCode, ...]

    def function(self, name: str) -> FunctionCode:
        return next(f for f in self.functions if f.name == name)


def translate(source: str, file: str = "", *, elide: bool = True, checked: bool = True) -> Translation:
    """Check a Choreo program and turn it into C++; `elide=False` makes every DMA a real copy.

    Indices that may be out of bounds are checked when they are used, unless
    `checked=False` says that they are right.

    Example:
        print(translate(Path("kernel.co").read_text(encoding="utf-8")).cpp)
    """
    program = parse(source, file)
    try:
        return _translate(program, elide, checked)
    except ChoreoError as error:
        raise error.within(source, file) from None


def _translate(program: tree.File, elide: bool, checked: bool) -> Translation:
    prints = any(isinstance(node, tree.Print) for f in program.functions for node in nodes(f.body))
    parts = ["#define CHOREO_PRINT\n" * prints + '#include "choreo.h"\n']
    functions: list[FunctionCode] = []
    taken: set[str] = set()
    for item in program.items:
        if isinstance(item, tree.HostCode):
            lines = [line for line in item.text.splitlines() if line.strip() != _OWN_HEADER]
            parts.append("\n".join(lines) + "\n")
        elif isinstance(item, tree.DeviceCode):
            parts.append(f"// __cok__\n{item.text}\n")
        else:
            if item.name in taken:
                raise ChoreoError(f"function `{item.name}` is defined twice", item.span)
            taken.add(item.name)
            check_waits(item)
            _check_calls(item, program)
            functions.append(CppFunction(item, elide, checked).translate())
            parts.append(functions[-1].cpp)
    return Translation("\n".join(parts), tuple(functions))


def _check_calls(function: tree.Function, program: tree.File) -> None:
    """What is called must be somewhere in the file's C++, unless that includes files of its own."""
    texts = [i.text for i in program.items if isinstance(i, tree.HostCode | tree.DeviceCode)]
    cpp = "\n".join(texts).replace(_OWN_HEADER, "")
    if re.search(r'^\s*#\s*include\s*"', cpp, re.MULTILINE):
        return
    for each in nodes(function.body):
        if isinstance(each, tree.Call) and not re.search(rf"\b{re.escape(each.name)}\b", cpp):
            raise ChoreoError(f"there is no kernel `{each.name}` in the C++ of this file", each.span)
