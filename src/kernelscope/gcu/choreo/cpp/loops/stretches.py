"""Long loops that ask for the memory of what they read and write before they come to it.

What a processor foresees by itself ends at the next page, and it reads a line of memory before it writes it.
So a long loop runs over stretches, and asks at the start of each for the lines of the one after the next.
Numbers of type f16 are converted stretch by stretch, and the loop computes with floats.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kernelscope.gcu.choreo.cpp.values import LoopHead

STRETCH = 256  # elements; choreo::STRETCH
_LEAST = 4 * STRETCH  # in a shorter loop there is little to foresee


def in_stretches(
    lines: list[str], header: LoopHead, fresh: Callable[[str], str], element_of: Callable[[str], str]
) -> list[str]:
    """The lines of a vectorised loop, from its pragma to its brace; over stretches if it is long."""
    count = int(header.high) if header.high.isdigit() else 0
    if (header.low, header.step) != ("0", "1") or count < _LEAST:
        return lines
    at = rf"(\w+)\[{re.escape(header.variable)}\]"
    written = [
        found[1] for line in lines if (found := re.match(rf"\s*(?:choreo::put\()?{at}(?: = |, )", line))
    ]
    arrays = dict.fromkeys([*written, *re.findall(rf"\b{at}", " ".join(lines))])
    halves = [each for each in arrays if element_of(each) == "f16"]
    if not written or (count % STRETCH and not halves):
        return lines
    first = fresh("choreo_first")
    indent = lines[0][: -len(lines[0].lstrip())] + "  "
    later = f"{first} + 2 * choreo::STRETCH"
    asked = [
        f"{indent}choreo::will_{'write' if each in written else 'read'}({each} + {later});" for each in arrays
    ]
    end = f"{first} + choreo::STRETCH"
    if count % STRETCH:
        asked.append(f"{indent}const int64_t {first}_end = choreo::min_({end}, int64_t({count}));")
        end = f"{first}_end"
    before, body, after = _with_floats(lines[2:-1], halves, written, header.variable, (first, end), fresh)
    within = LoopHead(header.variable, first, end, "1")
    inner = [lines[0], f"{indent[2:]}{within} {{", *body, lines[-1]]
    outer = f"{indent[2:]}for (int64_t {first} = 0; {first} < {count}; {first} += choreo::STRETCH) {{"
    return [
        outer,
        *asked,
        *(indent + line for line in before),
        *("  " + line for line in inner),
        *(indent + line for line in after),
        indent[2:] + "}",
    ]


def _with_floats(
    body: list[str],
    halves: list[str],
    written: list[str],
    variable: str,
    limits: tuple[str, str],
    fresh: Callable[[str], str],
) -> tuple[list[str], list[str], list[str]]:
    """The body with floats instead of numbers of type f16; what stands before it, and after it."""
    first, end = limits
    count = "" if end.endswith("STRETCH") else f", {end} - {first}"
    before, after = [], []
    for each in halves:
        place = f"{each}[{variable}]"
        floats = fresh(f"choreo_floats_{each}")
        before.append(f"alignas(64) float {floats}[choreo::STRETCH];")
        if each in written:
            after.append(f"choreo::narrow_stretch({floats}, {each} + {first}{count});")
        used = re.compile(rf"\b{re.escape(place)}")
        targets = sum(line.lstrip().startswith(f"choreo::put({place}, ") for line in body)
        if sum(len(used.findall(line)) for line in body) > targets:
            before.append(f"choreo::widen_stretch({each} + {first}, {floats}{count});")
        body = [used.sub(f"{floats}[{variable} - {first}]", line) for line in body]
    return before, body, after
