"""A training step of a small compiled model, with what its arguments ask for."""

from __future__ import annotations

import sys

import torch
import torch._inductor.config as config

if "import" in sys.argv:
    import kernelscope  # noqa: F401  # with torch's variable set, that is enough

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def loss(x: torch.Tensor) -> torch.Tensor:
    y = model(x)
    return (y.abs().neg().log() if "nan" in sys.argv else y).sum()


if "code" in sys.argv:
    config.aot_inductor.filtered_kernel_names = "CPP_fused_*,nothing"
    config.aot_inductor.debug_intermediate_value_printer = "3"
print("stock's level:", config.aot_inductor.debug_intermediate_value_printer)
torch.compile(loss)(torch.randn(3, 4)).backward()
print("reached the end")
