"""Long loops that ask for the memory of what they read and write before they come to it.

What a processor foresees by itself ends at the next page, and it reads a line of memory before it writes it.
So a long loop runs over stretches, and asks at the start of each for the lines of the one after the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kernelscope.gcu.choreo.cpp.values import LoopHead

STRETCH = 256  # elements; choreo::STRETCH
_LEAST = 4 * STRETCH  # in a shorter loop there is little to foresee


def in_stretches(lines: list[str], header: LoopHead, fresh: Callable[[str], str]) -> list[str]:
    """The lines of a vectorised loop, from its pragma to its brace; over stretches if it is long."""
    count = int(header.high) if header.high.isdigit() else 0
    if (header.low, header.step) != ("0", "1") or count < _LEAST or count % STRETCH:
        return lines
    at = rf"(\w+)\[{re.escape(header.variable)}\]"
    written = [
        found[1] for line in lines if (found := re.match(rf"\s*(?:choreo::put\()?{at}(?: = |, )", line))
    ]
    if not written:
        return lines
    arrays = dict.fromkeys([*written, *re.findall(rf"\b{at}", " ".join(lines))])
    first = fresh("choreo_first")
    indent = lines[0][: -len(lines[0].lstrip())]
    later = f"{first} + 2 * choreo::STRETCH"
    asked = [
        f"{indent}  choreo::will_{'write' if each in written else 'read'}({each} + {later});"
        for each in arrays
    ]
    within = LoopHead(header.variable, first, f"{first} + choreo::STRETCH", "1")
    inner = [lines[0], f"{indent}{within} {{", *lines[2:]]
    outer = f"{indent}for (int64_t {first} = 0; {first} < {count}; {first} += choreo::STRETCH) {{"
    return [outer, *asked, *("  " + line for line in inner), indent + "}"]
