"""A pass turns an addition into a subtraction."""

import planted_faults
import torch

planted_faults.a_pass_with_a_wrong_result()


@torch.compile
def residual(x, y):
    return x.sin() + y


torch.manual_seed(0)
print(residual(torch.randn(8, 16), torch.randn(8, 16)).sum())
