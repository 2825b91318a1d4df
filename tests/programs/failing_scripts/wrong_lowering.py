"""tanh is lowered to something 1 % too large."""

import planted_faults
import torch

planted_faults.a_lowering_with_a_wrong_result()


@torch.compile
def gate(x, y):
    return torch.tanh(x) * y.exp()


torch.manual_seed(0)
print(gate(torch.randn(8, 16), torch.randn(8, 16)).sum())
