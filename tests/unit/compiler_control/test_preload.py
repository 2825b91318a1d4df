"""A process that has loaded the compiler compiles a program as one that has not."""

from __future__ import annotations

import subprocess
import sys

CHANGES_A_DECOMPOSITION = """
from kernelscope.compiler_control.preload import warm_compiler

warm_compiler()

import torch
from torch._inductor.decomposition import decompositions, select_decomp_table

def wrong(x):
    return x * torch.sigmoid(1.7 * x)

decompositions[torch.ops.aten.silu.default] = wrong
assert select_decomp_table()[torch.ops.aten.silu.default] is wrong
"""


def test_decompositions_that_the_program_registers_are_used() -> None:
    """Torch keeps a copy of the table from the first compilation on."""
    subprocess.run([sys.executable, "-c", CHANGES_A_DECOMPOSITION], check=True, timeout=300)
