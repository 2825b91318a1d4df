"""The result of `diff`, which prints itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .divergence_parts import INPUTS_DIFFER, NONDETERMINISTIC, DivergenceFields
from .html import divergence_html
from .result_text import as_json, lines

_OF_VALUES = (NONDETERMINISTIC, INPUTS_DIFFER)


@dataclass(frozen=True, slots=True)
class Divergence(DivergenceFields):
    """Where two runs first differ, and why. False if they agree.

    Example:
        divergence = kernelscope.diff(first, second)
        if divergence:
            print(divergence.verdict, divergence.kernel_name, divergence.origin)
    """

    @property
    def values_differ(self) -> bool:
        """Whether some recorded value differs, and not only the kernels that made it."""
        return bool(self.differences) or bool(self.compared.differing) or self.verdict in _OF_VALUES

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
