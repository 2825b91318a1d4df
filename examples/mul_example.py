"""Element-wise mul through the gcu backend, checked against eager."""

from __future__ import annotations

import torch


def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(compute, backend="gcu")
    for shape in ((2, 4), (16, 32), (3, 5, 7)):
        x, y = torch.randn(shape), torch.randn(shape)
        result = compiled(x, y)
        torch.testing.assert_close(result, compute(x, y))
        print(f"{shape}: the compiled result equals eager's")


if __name__ == "__main__":
    main()
