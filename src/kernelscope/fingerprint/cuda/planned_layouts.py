"""What the kernels for planned hashes and those who launch them must agree on. Needs no torch."""

from __future__ import annotations

TENSORS_AT_ONCE = 32  # by the kernel that knows all the usual layouts
FLAT, BOTH, PAIRED, TRANSPOSED_2, TRANSPOSED_4, RUNS, STRIDED, STRIDED_2 = range(8)
ENTRY = 16  # layout, row in the log, bytes, first program, programs, and up to ten numbers of its layout
FLAT_AT_ONCE = 8
NUMBERS, FLAT_NUMBERS = 2 + TENSORS_AT_ONCE, 1 + 4 * FLAT_AT_ONCE  # that a launch takes
