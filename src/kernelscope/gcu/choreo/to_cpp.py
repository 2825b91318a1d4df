"""A Choreo file to one C++ translation unit."""

from __future__ import annotations

from dataclasses import dataclass

from . import tree
from .cpp_function import CppFunction, FunctionCode
from .errors import ChoreoError
from .parser import parse
from .waits import check_waits
from .walk import nodes


@dataclass(frozen=True)
class Translation:
    """C++ text, and what is known of its functions."""

    cpp: str
    functions: tuple[FunctionCode, ...]

    def function(self, name: str) -> FunctionCode:
        return next(f for f in self.functions if f.name == name)


def translate(source: str, file: str = "", *, elide: bool = True) -> Translation:
    """Check a Choreo program and turn it into C++; `elide=False` makes every DMA a real copy.

    Example:
        print(translate(open("kernel.co").read()).cpp)
    """
    program = parse(source, file)
    try:
        return _translate(program, elide)
    except ChoreoError as error:
        raise error.within(source, file) from None


def _translate(program: tree.File, elide: bool) -> Translation:
    prints = any(isinstance(node, tree.Print) for f in program.functions for node in nodes(f.body))
    parts = ["#define CHOREO_PRINT\n" * prints + '#include "choreo.h"\n']
    functions: list[FunctionCode] = []
    taken: set[str] = set()
    for item in program.items:
        if isinstance(item, tree.HostCode):
            lines = [line for line in item.text.splitlines() if line.strip() != '#include "choreo.h"']
            parts.append("\n".join(lines) + "\n")
        elif isinstance(item, tree.DeviceCode):
            parts.append(f"// __cok__\n{item.text}\n")
        else:
            if item.name in taken:
                raise ChoreoError(f"there are two functions `{item.name}`", item.span)
            taken.add(item.name)
            check_waits(item)
            functions.append(CppFunction(item, elide).translate())
            parts.append(functions[-1].cpp)
    return Translation("\n".join(parts), tuple(functions))
