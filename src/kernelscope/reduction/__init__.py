"""The smallest graph that still fails in the same way."""

from __future__ import annotations

from .opening import reduce as reduce
from .reducer import Reduction as Reduction
