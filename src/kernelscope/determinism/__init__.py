"""Running something several times from the same state, and comparing what it did."""

from __future__ import annotations

from .api import check_determinism

__all__ = ["check_determinism"]
