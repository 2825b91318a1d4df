"""Which kernel computes something else than eager: each one judged by its own part of the graph."""

from __future__ import annotations

from .api import check_correctness as check_correctness
from .api import shadow as shadow
from .culprit import Culprit as Culprit
from .culprit import Unchecked as Unchecked
from .result import ShadowResult as ShadowResult
