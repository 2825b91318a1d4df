"""Putting a script together: what is special to it first, what all of them share last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pprint import pformat
from typing import Any

from .. import __version__
from ..run import StoredRun
from .held_values import Tensors

_EMBEDDED = Path(__file__).with_name("embedded.py")
_WIDTH = 110


@dataclass(slots=True)
class Script:
    """A script and the tensors that go beside it."""

    name: str
    text: str
    tensors: Tensors
    notes: list[str] = field(default_factory=list)


def rule(title: str) -> str:
    return f"# -- {title} ".ljust(_WIDTH - 8, "-")


def docstring(what: str, run: StoredRun) -> str:
    wanted = ("torch", "triton", "python")
    versions = ", ".join(f"{k} {v}" for k, v in sorted(run.info.versions.items()) if k in wanted)
    return (
        f'"""{what}\n\n'
        f"Recorded with {versions}. Needs torch; the tensors are in the .safetensors file beside it.\n"
        "Exit status: 0 it computes what it should, 1 it does not, 2 that cannot be said here.\n"
        "    --benchmark    time it beside eager and Inductor\n\n"
        f'Written by kernelscope {__version__}.\n"""'
    )


def tables(given: dict[str, Any], recorded: dict[str, Any], notes: Sequence[str]) -> list[str]:
    return [
        rule("with these arguments"),
        f"GIVEN = {pformat(given, sort_dicts=False, width=_WIDTH)}",
        f"RECORDED = {pformat(recorded, sort_dicts=False, width=_WIDTH)}",
        f"NOTES = {pformat(list(notes), width=_WIDTH)}",
    ]


def ending(eager: str, first: Sequence[str] = ()) -> list[str]:
    """What every script shares, and what it does when it is run."""
    return [
        rule("the same in every such script: reading tensors, comparing, timing"),
        _embedded(),
        'if __name__ == "__main__":',
        *[f"    {line}" for line in first],
        '    if "--benchmark" in sys.argv:',
        f"        sys.exit(benchmark(__file__, launch, {eager}, GIVEN))",
        f"    sys.exit(check(__file__, launch, {eager}, GIVEN, RECORDED, NOTES))",
    ]


def laid_out(blocks: Sequence[str]) -> str:
    """Empty lines before what stands at the margin."""
    lines = [blocks[0], "", "from __future__ import annotations", "", "from math import inf, nan", ""]
    lines += ["import torch", "from torch import device"]
    for block in blocks[1:]:
        if not block.startswith("    "):
            lines.append("")
        lines.append(block)
    return "\n".join(lines) + "\n"


def _embedded() -> str:
    """Without its docstring and what a script must begin with."""
    text = _EMBEDDED.read_text()
    return text.partition("from __future__ import annotations\n")[2].strip()
