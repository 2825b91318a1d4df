"""The kernels in the text of a Choreo program."""

from __future__ import annotations

import re

from kernelscope.generated_code.kernels import GeneratedKernel

# As our printer writes it: a function begins and ends in the first column.
_FUNCTION = re.compile(r"^__co__ [^\n(]*?(?P<name>\w+)\([^\n]*\{\n.*?^\}$", re.MULTILINE | re.DOTALL)


def choreo_kernels_in(code: str) -> list[GeneratedKernel]:
    return [
        GeneratedKernel(found["name"], "choreo", found[0], code.count("\n", 0, found.start()) + 1)
        for found in _FUNCTION.finditer(code)
    ]
