"""How many elements take two blocks of the small Triton kernels."""

from __future__ import annotations

N = 100  # the second block is not full
