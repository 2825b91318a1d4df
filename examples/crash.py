"""Dies inside a compiled C++ kernel: an index far outside, and the check for it turned off."""

import torch

torch._inductor.config.assert_indirect_indexing = False


@torch.compile
def look_up(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index] * 2


table = torch.randn(1000, 8)
for far in (1, 2, 3, 1 << 40):
    look_up(table, torch.tensor([0, far]))
