"""The kernels in the text of a Choreo program."""

from __future__ import annotations

import re

from kernelscope.generated_code.kernels import GeneratedKernel

# As our printer writes it: a function begins and ends in the first column.
# No text is looked at twice: a stranger's may be of any length.
_START = re.compile(r"^__co__ (?P<before>[^\n(]*)\([^\n]*\{$", re.MULTILINE)
_NAME = re.compile(r"(?<!\w)\w++$")
_END = re.compile(r"^\}$", re.MULTILINE)


def choreo_kernels_in(code: str) -> list[GeneratedKernel]:
    found: list[GeneratedKernel] = []
    at, line = 0, 1
    while start := _START.search(code, at):
        end = _END.search(code, start.end())
        if end is None:
            break
        line += code.count("\n", at, start.start())
        if name := _NAME.search(start["before"]):
            text = code[start.start() : end.end()]
            found.append(GeneratedKernel(name[0], "choreo", text, line))
        line += code.count("\n", start.start(), end.end())
        at = end.end()
    return found
