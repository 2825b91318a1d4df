"""Programs in which nothing is wrong, each hard to judge in its own way: none of them may raise an alarm."""

from __future__ import annotations

from tests.programs.clean import control_flow, memory, models, numbers, training  # noqa: F401  # add theirs
from tests.programs.clean.models import Block
from tests.programs.clean.registry import NOT_CHECKED, PROGRAMS

__all__ = ["NOT_CHECKED", "PROGRAMS", "Block"]
