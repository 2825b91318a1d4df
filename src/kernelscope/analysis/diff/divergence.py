"""The result of `diff`, which prints itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .divergence_parts import DivergenceFields
from .html import divergence_html
from .result_text import as_json, lines


@dataclass(frozen=True, slots=True)
class Divergence(DivergenceFields):
    """Where two runs first differ, and why. False if they agree.

    Example:
        divergence = kernelscope.diff(first, second)
        if divergence:
            print(divergence.verdict, divergence.kernel_name, divergence.origin)
    """

    def to_json(self) -> dict[str, Any]:
        """`divergence` is null if the runs agree; docs/diff.md describes the keys."""
        return as_json(self)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        """For notebooks."""
        return divergence_html(self)

    def with_notes(self, *notes: str) -> Divergence:
        return replace(self, notes=(*self.notes, *notes))
