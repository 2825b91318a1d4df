"""What `check` accepts, the C++ compiler accepts; what it refuses gets a sentence with a line."""

from __future__ import annotations

import re

import pytest

from kernelscope.gcu import toolchain
from kernelscope.gcu.choreo import ChoreoError, parse, show, translate

from .corpus_programs import PARTS
from .random_programs import program


def agreed(seeds: range) -> tuple[int, int]:
    """How many programs were accepted and refused; all that were accepted compile."""
    parts = [*(f"#define {part}\n" for part in PARTS), '#include "choreo.h"\n']
    accepted = 0
    refused: list[ChoreoError] = []
    for seed in seeds:
        source = program(seed)
        try:
            cpp = translate(source, f"random_{seed}.co", located=True).cpp
        except ChoreoError as error:
            refused.append(error)
            continue
        assert show(parse(show(parse(source)))) == show(parse(source))
        body = re.sub(r"^#define CHOREO_\w+\n", "", cpp, flags=re.MULTILINE)
        parts.append(f"namespace p{seed} {{\n{body}\n}}\n")
        accepted += 1
    toolchain.check("\n".join(parts))
    assert all(error.line > 0 and error.message for error in refused)
    return accepted, len(refused)


def test_check_and_build_agree() -> None:
    accepted, refused = agreed(range(60))
    assert accepted >= 30
    assert refused >= 3


@pytest.mark.slow
def test_check_and_build_agree_on_a_thousand() -> None:
    found = [agreed(range(start, start + 100)) for start in range(1000, 2000, 100)]
    assert sum(a for a, _ in found) >= 500
    assert sum(r for _, r in found) >= 50
