"""Which step of the compiler made the compiled function compute something else."""

from __future__ import annotations

from .region import Difference, Region


def blame(region: Region, difference: Difference) -> str:
    """The step between Dynamo's graph and the compiled code; empty where it is not known."""
    return ""
