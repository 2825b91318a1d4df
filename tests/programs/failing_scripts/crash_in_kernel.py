"""A kernel reads outside of its memory, which ends the process."""

import planted_faults
import torch

planted_faults.a_lowering_that_reads_outside()


@torch.compile
def curve(x):
    return torch.erf(x.sin()) + 1


print(curve(torch.ones(64, 64)).sum())
