"""x + y through the gcu backend, with every stage shown when CONDUCTOR_DEBUG=1.

CONDUCTOR_DEBUG=1 python examples/debug_simple_add.py
"""

from __future__ import annotations

import torch


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def main() -> None:
    x, y = torch.arange(8.0).reshape(2, 4), torch.ones(2, 4)
    result = torch.compile(add, backend="gcu")(x, y)
    print(f"\nresult: {result}")
    torch.testing.assert_close(result, add(x, y))


if __name__ == "__main__":
    main()
