"""Functions of a batch: in one half a kernel makes rows depend on others, in the other half none does.

Each is made anew: (function, arguments). Of the first half it is known what the first such kernel computes.
"""

from __future__ import annotations

from tests.programs.rows import dependent, dependent_when_sorted, independent, serving  # noqa: F401  # add theirs
from tests.programs.rows.registry import INVARIANT, VARIANT, RowProgram, made_on, rows

__all__ = ["INVARIANT", "VARIANT", "RowProgram", "made_on", "rows"]
